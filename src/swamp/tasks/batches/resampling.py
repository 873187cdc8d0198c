"""Scales views of images to one size, mirrors and normalises them: one kernel on a GPU, image by image elsewhere.

Pixels are averaged under a triangle as wide as two output pixels, as in PIL's bilinear `resize` and torch's `interpolate(antialias=True)`.
The boxes of a batch have many sizes; they are packed one behind the other into one buffer of bytes, with a table of where each begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from swamp.core.errors import reason_of

# The columns of a batch's table, which has a row for each image.
COLUMNS = ("offset", "height", "width", "scaled_height", "scaled_width", "top", "left", "flip", "label")
NUM_COLUMNS = len(COLUMNS)
OFFSET, HEIGHT, WIDTH, SCALED_HEIGHT, SCALED_WIDTH, TOP, LEFT, FLIP, LABEL = range(NUM_COLUMNS)

log = logging.getLogger("swamp")


def resampled(pixels: Tensor, table: Tensor, size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Return the views of a batch as float32 (count, 3, size, size), from bytes and a table that lie on one device.

    On a GPU, images are laid out channels last, which convolutions want there.
    """
    kernel = find_kernel(pixels.device) if pixels.is_cuda else None
    if kernel is not None:
        out = torch.empty((len(table), 3, size, size), device=pixels.device, memory_format=torch.channels_last)
        with torch.cuda.device_of(pixels):  # Triton uses the current device, wherever tensors lie.
            kernel(pixels, table, out, mean, std)
        return out
    return torch.stack([view_of(pixels, row, size, mean, std) for row in table.tolist()])


def view_of(pixels: Tensor, row: list[int], size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Return one view of a batch by torch's own functions. The kernel is tested against this."""
    offset, height, width, scaled_height, scaled_width, top, left, flip, _ = row
    box = pixels[offset : offset + 3 * height * width].view(1, height, width, 3).permute(0, 3, 1, 2)
    scaled = F.interpolate(box.float(), (scaled_height, scaled_width), mode="bilinear", antialias=True)
    view = scaled[0, :, top : top + size, left : left + size]
    view = view.flip(-1) if flip else view
    centre, spread = (torch.tensor(values, device=pixels.device).view(-1, 1, 1) for values in (mean, std))
    return (view - centre) / spread


Kernel = Callable[[Tensor, Tensor, Tensor, tuple[float, ...], tuple[float, ...]], None]


@cache
def find_kernel(device: torch.device) -> Kernel | None:
    """Return the kernel for a GPU, or None where there is no Triton or it cannot compile. It is tried on an image of one pixel."""
    try:
        from swamp.tasks.batches.resampling_kernels import resample

        with torch.cuda.device(device):
            table = torch.tensor([[0, 1, 1, 1, 1, 0, 0, 0, 0]], device=device)
            resample(
                torch.zeros(3, dtype=torch.uint8, device=device), table, torch.empty((1, 3, 1, 1), device=device), (0.0,) * 3, (1.0,) * 3
            )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler raises
        log.warning(f"Triton does not work here ({reason_of(error)}), so images are scaled one by one, which is slow on a GPU")
        return None
    return resample
