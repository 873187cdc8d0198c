"""Scaled views against PIL and torch, and the kernel against both: in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from swamp.tasks.batches import resampling
from swamp.tasks.batches.packing import packed
from swamp.tasks.batches.views import Views, central_views, training_views

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
NOTHING = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)  # the normalisation that changes nothing


class Pictures(list[np.ndarray]):
    """Images in memory, smooth ones with edges and some noise."""

    def pixels(self, index: int) -> np.ndarray:
        return self[index]


def pictures(sizes: Tensor) -> Pictures:
    draw = np.random.default_rng(0)

    def picture(height: int, width: int) -> np.ndarray:
        y, x = np.mgrid[:height, :width] / max(height, width)
        waves = [np.sin(20 * x + phase) * np.cos(17 * y - phase) + (x > 0.4) - (y > 0.7) for phase in draw.uniform(0, 6, 3)]
        return np.clip(128 + 60 * np.stack(waves, 2) + draw.normal(0, 25, (height, width, 3)), 0, 255).astype(np.uint8)

    return Pictures(picture(*size) for size in sizes.tolist())


def by_pil(image: np.ndarray, views: Views, row: int, size: int) -> np.ndarray:
    top, left, height, width = views.box[row].tolist()
    scaled_height, scaled_width = views.scaled[row].tolist()
    down, right = views.shift[row].tolist()
    crop = Image.fromarray(image[top : top + height, left : left + width])
    view = crop.resize((scaled_width, scaled_height), Image.Resampling.BILINEAR).crop((right, down, right + size, down + size))
    return np.array(view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if views.flip[row] else view)


SIZES = torch.tensor([[40, 57], [64, 40], [33, 33], [90, 41], [5, 70], [48, 48]])


def cases() -> list[tuple[Views, int]]:
    draw = torch.Generator().manual_seed(5)
    return [
        (training_views(SIZES, 24, True, draw), 24),  # mostly smaller than the boxes
        (training_views(SIZES, 43, True, draw), 43),  # mostly larger
        (central_views(SIZES, 24), 24),
    ]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernels as Triton's interpreter runs them. It must be asked for when they are defined."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    scope = interpreter._LangPatchScope
    set_attr = scope.set_attr

    def set_new_attr(self: Any, kind: Any, name: str, value: Any) -> None:
        # The interpreter holds scalars as arrays of one number, of which NumPy 2.4 makes no integers any more.
        set_attr(self, kind, name, (lambda tensor: int(tensor.handle.data.item())) if name == "__index__" else value)

    monkeypatch.setattr(scope, "set_attr", set_new_attr)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    path = Path(resampling.__file__).with_name("resampling_kernels.py")
    spec = importlib.util.spec_from_file_location("interpreted_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", range(3))
def test_torch_scales_as_pil_does_to_one_grey_level(case: int) -> None:
    (views, size), images = cases()[case], pictures(SIZES)
    pixels, table = packed(images, list(range(len(SIZES))), views, torch.arange(len(SIZES)))
    found = resampling.resampled(pixels, table, size, *NOTHING)
    assert found.shape == (len(SIZES), 3, size, size)
    for row, image in enumerate(images):
        wanted = by_pil(image, views, row, size).transpose(2, 0, 1)
        difference = np.abs(found[row].numpy() - wanted)
        assert difference.max() <= 1.0
        assert difference.mean() < 0.4  # PIL rounds twice, after each direction: an error of 0.33 on average.


def test_views_are_normalised_by_channel() -> None:
    (views, size), images = cases()[0], pictures(SIZES)
    pixels, table = packed(images, list(range(len(SIZES))), views, torch.arange(len(SIZES)))
    plain, normal = (resampling.resampled(pixels, table, size, *how) for how in (NOTHING, (MEAN, STD)))
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    assert torch.equal(normal, (plain - mean) / std)


def check_kernel(kernels: ModuleType, views: Views, size: int, device: str, memory_format: torch.memory_format) -> None:
    pixels, table = packed(pictures(SIZES), list(range(len(SIZES))), views, torch.arange(len(SIZES)))
    wanted = resampling.resampled(pixels, table, size, MEAN, STD)
    out = torch.full((len(SIZES), 3, size, size), torch.nan, device=device).contiguous(memory_format=memory_format)
    kernels.resample(pixels.to(device), table.to(device), out, MEAN, STD)
    # A hundredth of a grey level: torch rounds weights in other places.
    assert (out.cpu() - wanted).abs().max() < 0.01 / min(STD)


@pytest.mark.parametrize("case", range(3))
def test_the_kernel_computes_what_torch_does(case: int, interpreted: ModuleType) -> None:
    check_kernel(interpreted, *cases()[case], "cpu", torch.channels_last if case else torch.contiguous_format)


@pytest.mark.gpu
@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("case", range(3))
def test_the_kernel_on_a_gpu_computes_what_torch_does_on_the_cpu(case: int, memory_format: torch.memory_format) -> None:
    from swamp.tasks.batches import resampling_kernels

    check_kernel(resampling_kernels, *cases()[case], "cuda", memory_format)


@pytest.mark.gpu
def test_large_offsets_do_not_overflow() -> None:
    """The last box of a batch may begin beyond the largest 32-bit number."""
    from swamp.tasks.batches import resampling_kernels

    box = pictures(torch.tensor([[30, 40]]))[0]
    begin = 2**31 + 5
    pixels = torch.zeros(begin + box.size, dtype=torch.uint8, device="cuda")
    pixels[begin:] = torch.from_numpy(box).flatten().cuda()
    row = [30, 40, 16, 16, 0, 0, 1, 0]
    out = torch.empty((1, 3, 16, 16), device="cuda")
    resampling_kernels.resample(pixels, torch.tensor([[begin, *row]], device="cuda"), out, MEAN, STD)
    wanted = resampling.view_of(torch.from_numpy(box).flatten(), [0, *row], 16, MEAN, STD)
    assert (out[0].cpu() - wanted).abs().max() < 0.01 / min(STD)
