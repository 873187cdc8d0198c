from __future__ import annotations

import pytest
import torch
from torch import nn

from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest, magnitude
from swamp.core.state import State
from swamp.export.semi_structured import MatrixConv, semi_structured, tune, with_matrices
from swamp.tasks.models import find_model


def two_of_four(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = find_model(name)(3, 10)
    state = State.of(model)
    mask = Mask.ones({n: tuple(t.shape) for n, t in state.parameters.items() if t.ndim == 4})
    # the stem has three input channels, no group of four: its 432 weights stay
    keep_highest(magnitude(state, mask), mask, mask.num_weights // 2 + 216, "2:4").apply(state).into(model)
    return model.eval()


def test_layers_as_matrices_compute_the_same() -> None:
    model, x = two_of_four("wrn10-4"), torch.randn(3, 3, 12, 12)
    matrices, changed = with_matrices(model)
    assert set(changed) >= {"blocks.1.conv1.weight", "blocks.1.conv2.weight", "blocks.1.shortcut.weight"}
    assert "stem.weight" not in changed
    assert sum(isinstance(module, MatrixConv) for module in matrices.modules()) == len(changed)
    with torch.no_grad():
        torch.testing.assert_close(matrices(x), model(x), atol=1e-4, rtol=1e-3)
    assert with_matrices(find_model("wrn10-4")(3, 10))[1] == []  # dense ones stay


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_model_that_is_one_convolution_with_a_bias(kernel: int) -> None:
    conv = nn.Conv2d(64, 32, kernel, stride=2, padding=kernel // 2)
    conv.weight.data[:, ::2] = 0
    matrices, changed = with_matrices(conv)
    assert changed == ["weight"]
    assert isinstance(matrices, MatrixConv)
    x = torch.randn(2, 64, 7, 7)
    with torch.no_grad():
        torch.testing.assert_close(matrices(x), conv(x), atol=1e-5, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("images", [16, 1])  # the last stage of one image has 64 rows, and its classifier one
def test_the_kernels_compute_the_same(dtype: torch.dtype, images: int) -> None:
    model, x = two_of_four("wrn10-4"), torch.randn(images, 3, 32, 32)
    fast, changed = semi_structured(model, dtype)
    assert changed
    given = x.to("cuda", dtype)
    with torch.inference_mode():
        found, expected = fast(given).float().cpu(), model(x)
    assert (found - expected).abs().max() < 0.03 * expected.abs().max()
    if dtype == torch.float16:
        with pytest.raises(ValueError, match="in bfloat16, not in float16"):
            tune(fast, given)
        return
    assert len(tune(fast, given)) == len(changed)
    with torch.inference_mode():
        assert (fast(given).float().cpu() - expected).abs().max() < 0.03 * expected.abs().max()


@pytest.mark.gpu
def test_linear_layers_of_texts() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32, bias=False))
    for layer in (model[0], model[2]):
        layer.weight.data[:, ::2] = 0
    fast, changed = semi_structured(model, torch.bfloat16)
    assert changed == ["0.weight", "2.weight"]
    x = torch.randn(3, 5, 64)  # 15 rows: not a multiple that the kernels take
    with torch.inference_mode():
        found, expected = fast(x.to("cuda", torch.bfloat16)), model(x)
    assert found.is_contiguous()
    assert (found.float().cpu() - expected).abs().max() < 0.03 * expected.abs().max()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_said() -> None:
    with pytest.raises(RuntimeError, match="need an NVIDIA GPU"):
        semi_structured(nn.Linear(64, 32))
