"""The Triton kernel that makes a batch from packed boxes: scaling under a triangle filter, mirroring and normalisation in one pass.

A program computes a run of output pixels of one image, all three channels. Weights are computed where they are used: for output pixel i the
centre lies at c = (i + shift + ½) · scale in the box, and source pixel j has the weight max(0, 1 − |j + ½ − c| / max(scale, 1)), divided by
the sum of the weights inside the box.
"""

# ruff: noqa: N803
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-def, arg-type, type-arg"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

PIXELS = 256  # output pixels of a program
NUM_WARPS = 4


@triton.jit
def _taps(index, shift, scale, support, length):
    """Return the centre of each output pixel in the box, and the first source pixel that counts."""
    centre = (index + shift + 0.5) * scale
    first = tl.maximum((centre - support + 0.5).to(tl.int32), 0)
    return centre, tl.minimum(first, length - 1)


@triton.jit
def _weight(source, centre, support, length):
    """Return the weight of a source pixel, which is 0 outside of the triangle and outside of the box."""
    inside = 1.0 - tl.abs(source + 0.5 - centre) / support
    return tl.where(source < length, tl.maximum(inside, 0.0), 0.0)


@triton.jit
def resample_kernel(
    pixels, table, out, mean_r, mean_g, mean_b, std_r, std_g, std_b, size, stride_image, stride_channel, stride_row, stride_column,
    COLUMNS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    row = table + image * COLUMNS
    offset = tl.load(row)
    height, width = tl.load(row + 1).to(tl.int32), tl.load(row + 2).to(tl.int32)
    scale_y = height.to(tl.float32) / tl.load(row + 3).to(tl.float32)
    scale_x = width.to(tl.float32) / tl.load(row + 4).to(tl.float32)
    support_y, support_x = tl.maximum(scale_y, 1.0), tl.maximum(scale_x, 1.0)
    flip = tl.load(row + 7).to(tl.int32)

    index = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = index < size * size
    y, x = index // size, index % size
    from_left = x + flip * (size - 1 - 2 * x)
    centre_y, first_y = _taps(y, tl.load(row + 5).to(tl.int32), scale_y, support_y, height)
    centre_x, first_x = _taps(from_left, tl.load(row + 6).to(tl.int32), scale_x, support_x, width)

    red = tl.full((PIXELS,), 0.0, tl.float32)
    green = tl.full((PIXELS,), 0.0, tl.float32)
    blue = tl.full((PIXELS,), 0.0, tl.float32)
    total = tl.full((PIXELS,), 0.0, tl.float32)
    # The triangle is 2 · support wide: no more source pixels than this have their middle inside it.
    for down in range((2.0 * support_y).to(tl.int32) + 1):
        source_y = first_y + down
        weight_y = _weight(source_y, centre_y, support_y, height)
        line = pixels + offset + source_y.to(tl.int64) * width * 3
        for right in range((2.0 * support_x).to(tl.int32) + 1):
            source_x = first_x + right
            weight = weight_y * _weight(source_x, centre_x, support_x, width)
            used = inside & (weight > 0.0)
            red += weight * tl.load(line + source_x * 3, mask=used, other=0).to(tl.float32)
            green += weight * tl.load(line + source_x * 3 + 1, mask=used, other=0).to(tl.float32)
            blue += weight * tl.load(line + source_x * 3 + 2, mask=used, other=0).to(tl.float32)
            total += weight
    target = out + image * stride_image + y * stride_row + x * stride_column
    total = tl.where(inside, total, 1.0)
    tl.store(target, ((red / total - mean_r) / std_r).to(out.dtype.element_ty), mask=inside)
    tl.store(target + stride_channel, ((green / total - mean_g) / std_g).to(out.dtype.element_ty), mask=inside)
    tl.store(target + 2 * stride_channel, ((blue / total - mean_b) / std_b).to(out.dtype.element_ty), mask=inside)


def resample(pixels: Tensor, table: Tensor, out: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    """Fill `out`, (count, 3, size, size) of any layout and type, from packed boxes and their table."""
    count, _, size, _ = out.shape
    image, channel, row, column = out.stride()
    resample_kernel[(count, triton.cdiv(size * size, PIXELS))](
        pixels, table, out, *mean, *std, size, image, channel, row, column, table.shape[1], PIXELS, num_warps=NUM_WARPS
    )
