"""2:4 networks on NVIDIA GPUs: layers as sparse matrices of torch's semi-structured kernels.

Of four neighbouring weights two are stored, and tensor cores skip the others. A convolution is the product of its weights, outputs ×
(kernel · inputs), with the windows of the image, which are copied out first; the pattern `2:4` leaves two of four neighbouring *input
channels*, so these stand innermost. Layers whose shape the kernels do not take, or whose zeros are others, stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS, COLUMNS = 32, 64  # the kernels take multiples of these, in 16 bits


class MatrixConv(nn.Module):
    """A convolution as a product of matrices."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.weight = nn.Parameter(as_matrix(conv), requires_grad=False)
        self.bias = conv.bias
        self.kernel, self.stride, self.padding = (_pair(sides) for sides in (conv.kernel_size, conv.stride, conv.padding))

    def forward(self, x: Tensor) -> Tensor:
        (top, left), (down, right), (high, wide) = self.padding, self.stride, self.kernel
        x = F.pad(x, (left, left, top, top)).permute(0, 2, 3, 1)
        windows = x.unfold(1, high, down).unfold(2, wide, right).permute(0, 1, 2, 4, 5, 3)  # images, rows, columns, kernel, channels
        rows = windows.reshape(-1, high * wide * x.shape[3])
        return F.linear(rows, self.weight, self.bias).view(*windows.shape[:3], -1).permute(0, 3, 1, 2)


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
    """A copy of the model whose 2:4 layers are products of (still dense) matrices, and their names."""
    model, changed = copy.deepcopy(model), []
    for name, layer in list(model.named_modules()):
        if not isinstance(layer, (nn.Conv2d, nn.Linear)) or not _is_plain(layer) or not is_semi_structured(as_matrix(layer)):
            continue
        changed.append(f"{name}.weight".lstrip("."))
        if isinstance(layer, nn.Conv2d) and name:
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, MatrixConv(layer))
    return model, changed


def _is_plain(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv2d):
        return True
    return layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def semi_structured(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """A copy of the model on the GPU, in float16, for inference; and which weights the kernels compute with."""
    if not torch.cuda.is_available():
        raise RuntimeError("semi-structured kernels need an NVIDIA GPU, and torch sees none")
    model, changed = with_matrices(model)
    model = model.eval().cuda().half()
    for name in changed:
        path, _, leaf = name.rpartition(".")
        sparse = torch.sparse.to_sparse_semi_structured(model.get_parameter(name).detach())
        setattr(model.get_submodule(path), leaf, nn.Parameter(sparse, requires_grad=False))
    return model, changed
