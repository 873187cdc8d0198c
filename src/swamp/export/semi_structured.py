"""2:4 networks on NVIDIA GPUs: layers as sparse matrices of torch's semi-structured kernels.

Of four neighbouring weights two are stored, and tensor cores skip the others. A convolution is the product of its weights, outputs ×
(kernel · inputs), with the windows of the image, which are copied out first; the pattern `2:4` leaves two of four neighbouring *input
channels*, so these stand innermost. Layers whose shape the kernels do not take, or whose zeros are others, stay as they are.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.sparse import SparseSemiStructuredTensor

ROWS, COLUMNS = 32, 64  # what every version of the kernels takes multiples of, in 16 bits, without padding weights
EXAMPLES = 8  # inputs are padded to multiples of this


class MatrixConv(nn.Module):
    """A convolution as a product of matrices."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        matrix = as_matrix(conv)
        self.product = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False, device="meta")
        self.product.weight = nn.Parameter(matrix, requires_grad=False)
        self.product.bias = conv.bias  # type: ignore[assignment]
        self.kernel, self.stride, self.padding = (_pair(sides) for sides in (conv.kernel_size, conv.stride, conv.padding))

    def forward(self, x: Tensor) -> Tensor:
        (top, left), (down, right), (high, wide) = self.padding, self.stride, self.kernel
        if top or left:  # else nothing is copied, and a 1×1 convolution of images with channels innermost is the product alone
            x = F.pad(x, (left, left, top, top))
        x = x.permute(0, 2, 3, 1)
        windows = x.unfold(1, high, down).unfold(2, wide, right).permute(0, 1, 2, 4, 5, 3)  # images, rows, columns, kernel, channels
        rows = windows.reshape(-1, high * wide * x.shape[3]).contiguous()
        return self.product(rows).view(*windows.shape[:3], -1).permute(0, 3, 1, 2)


def _pair(sides: Iterable[int | str]) -> tuple[int, int]:
    high, wide = (int(side) for side in sides)
    return high, wide


def as_matrix(layer: nn.Conv2d | nn.Linear) -> Tensor:
    """Outputs × inputs, input channels innermost."""
    weight = layer.weight.detach()
    return (weight.permute(0, 2, 3, 1) if weight.ndim == 4 else weight).reshape(len(weight), -1).contiguous()


def is_semi_structured(matrix: Tensor) -> bool:
    """Whether of four neighbours two are zero at least, and the kernels take the shape.

    >>> is_semi_structured(torch.tensor([0.0, 1.0, 1.0, 0.0]).repeat(32, 16))
    True
    >>> is_semi_structured(torch.ones(32, 64)), is_semi_structured(torch.zeros(30, 64))
    (False, False)
    """
    rows, columns = matrix.shape
    return rows % ROWS == 0 and columns % COLUMNS == 0 and bool((matrix.view(rows, -1, 4).count_nonzero(2) <= 2).all())


def with_matrices(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """A copy of the model whose 2:4 layers are products of (still dense) matrices, and the names of their weights in the model."""
    whole, changed = nn.Module(), []
    whole.model = copy.deepcopy(model)  # a model that is one convolution has a place, too
    for name, layer in list(whole.named_modules()):
        if not isinstance(layer, (nn.Conv2d, nn.Linear)) or not _is_plain(layer) or not is_semi_structured(as_matrix(layer)):
            continue
        changed.append(f"{name}.weight".removeprefix("model."))
        if isinstance(layer, nn.Conv2d):
            parent, _, leaf = name.rpartition(".")
            setattr(whole.get_submodule(parent), leaf, MatrixConv(layer))
    return whole.model, changed


def _is_plain(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv2d):
        return True
    return layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def semi_structured(model: nn.Module, dtype: torch.dtype = torch.bfloat16) -> tuple[nn.Module, list[str]]:
    """A copy of the model on the GPU, in 16 bits, for inference; and which weights the kernels compute with."""
    if not torch.cuda.is_available():
        raise RuntimeError("semi-structured kernels need an NVIDIA GPU, and torch sees none")
    model, changed = with_matrices(model)
    # images with channels innermost are what the products give, and what the other convolutions then take
    model = model.eval().to("cuda", dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for name in changed:
        layer = model.get_submodule(name.rpartition(".")[0])
        product = layer.product if isinstance(layer, MatrixConv) else layer
        assert isinstance(product, nn.Linear)
        product.weight = nn.Parameter(compressed(product.weight.detach()), requires_grad=False)
    return model, changed


def compressed(matrix: Tensor) -> Tensor:
    """A 2:4 matrix on the GPU as torch's kernels take it."""
    with _results_row_by_row(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has called the interface a prototype since 2.1
        return torch.sparse.to_sparse_semi_structured(matrix.contiguous())


@contextlib.contextmanager
def _results_row_by_row() -> Iterator[None]:
    """Up to torch 2.12 a product's result comes transposed in memory unless this was set when its weights were compressed; whatever reads
    the result, the next layer's windows first of all, would have to put it in order."""
    before = SparseSemiStructuredTensor._FUSE_TRANSPOSE
    SparseSemiStructuredTensor._FUSE_TRANSPOSE = True
    try:
        yield
    finally:
        SparseSemiStructuredTensor._FUSE_TRANSPOSE = before


def _fastest(packed: Tensor, columns: Tensor, bias: Tensor | None) -> int:
    """The number of the kernel that multiplies these fastest."""
    if search := getattr(getattr(torch._C, "_cusparselt", None), "mm_search", None):  # since torch 2.11, which warns of the other
        return int(search(packed, columns, bias, None, None, True)[0])
    return int(torch._cslt_sparse_mm_search(packed, columns, bias=bias, transpose_result=True))


def tune(model: nn.Module, *inputs: Tensor) -> dict[str, int]:
    """Let cuSPARSELt choose the fastest of its kernels for each product of a `semi_structured` model, at the sizes of these inputs. By
    default it takes its first. The model is changed; what was chosen is told by the layers' names.

    Only in bf16: in float16 a search has met a kernel that ended the process (an illegal instruction; cuSPARSELt 0.8.0 on an H200).
    """
    known: dict[tuple[object, ...], int] = {}
    chosen: dict[str, int] = {}

    def choose(name: str, layer: nn.Linear, given: Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, SparseSemiStructuredTensor)
        assert weight.packed is not None
        if weight.dtype != torch.bfloat16:
            raise ValueError(f"kernels are searched for in bfloat16, not in {str(weight.dtype).removeprefix('torch.')}")
        rows = given.reshape(-1, given.shape[-1])
        rows = F.pad(rows, (0, 0, 0, -len(rows) % EXAMPLES)).contiguous()
        sizes = (weight.shape, len(rows), layer.bias is None)
        if sizes not in known:  # a search takes a tenth of a second, and networks repeat themselves
            known[sizes] = _fastest(weight.packed, rows.t(), layer.bias)
        chosen[name] = weight.alg_id_cusparselt = known[sizes]

    hooks = [
        layer.register_forward_pre_hook(lambda layer, given, name=name: choose(name, layer, given[0]))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and isinstance(layer.weight, SparseSemiStructuredTensor)
    ]
    try:
        with torch.inference_mode():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return chosen
