"""Decodes image files to RGB pixels, by the fastest JPEG decoder that is installed, and scales them.

A decoder that is given the wanted size of the shorter side may decode at 1/2, 1/4 or 1/8 of the size, as long as the shorter side stays
that long. What a fast decoder refuses (PNG files, CMYK, whatever is damaged) is read by PIL, which also says what is wrong with it.
Pixels may depend on the decoder, so that its name belongs to the settings of prepared images.

Grey images and palettes become RGB, CMYK is converted, 16-bit greys are divided by 257, and transparency is dropped. A rotation that
EXIF data ask for is ignored, as is usual for ImageNet.
"""

from __future__ import annotations

import importlib
import io
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch.nn import functional as F

from swamp.core.errors import nearest, reason_of

MOST_PIXELS = 2**27  # of an image; PIL's own limit is higher, and the largest image of ImageNet has less than half as many
JPEG_BEGIN = b"\xff\xd8"
MOST_JPEG_SIDE = 65_500  # pixels; the limit of libjpeg
RESAMPLING = "bilinear with antialias (torch)"

Pixels = NDArray[np.uint8]  # (height, width, 3)
Decode = Callable[[bytes, int], Pixels]  # gets an image file and the wanted shorter side, 0 for the whole image


class UnreadableImage(ValueError):
    """A file is no image that can be read."""


@contextmanager
def no_warnings() -> Iterator[None]:
    """Silence PIL, which warns of damaged EXIF data, which are ignored, and of images that MOST_PIXELS allows.

    Filters of warnings are shared by all threads, so only the main thread changes them. Other threads decode stored images, of which PIL
    has nothing to say.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def decode_by_pil(data: bytes, size: int) -> Pixels:
    """Decode any image that PIL reads."""
    try:
        with no_warnings(), Image.open(io.BytesIO(data)) as image:
            check_area(*image.size)
            if size and image.format == "JPEG":
                image.draft(None, _draft_size(*image.size, size))
            return np.asarray(to_rgb(image))
    except UnreadableImage:
        raise
    except UnidentifiedImageError:
        raise UnreadableImage("it is no image of a known kind") from None
    except MemoryError:
        raise
    except Exception as error:  # PIL's readers raise errors of many kinds for damaged files.
        raise UnreadableImage(reason_of(error)) from None


def check_area(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise UnreadableImage(f"it has {width:,}×{height:,} pixels, more than {MOST_PIXELS:,}")
    if not width * height:
        raise UnreadableImage("it has no pixels")


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to RGB. 16-bit greys, which PIL would cut off at 255, are scaled."""
    if image.mode.startswith("I"):
        image = Image.fromarray(np.clip(np.rint(np.asarray(image, np.float64) / 257), 0, 255).astype(np.uint8))
    return image.convert("RGB")


def scale_for(height: int, width: int, size: int) -> int:
    """Return by which of 1, 2, 4 and 8 an image can be divided while its shorter side stays at least `size`."""
    return next((scale for scale in (8, 4, 2) if size and -(-min(height, width) // scale) >= size), 1)


def _draft_size(width: int, height: int, size: int) -> tuple[int, int]:
    scale = scale_for(height, width, size)
    return width // scale, height // scale  # PIL takes the largest division that leaves at least these


def _simplejpeg() -> Decode:
    jpeg = importlib.import_module("simplejpeg")

    def decode(data: bytes, size: int) -> Pixels:
        try:
            height, width, space, _ = jpeg.decode_jpeg_header(data)
            if space not in ("YCbCr", "Gray", "RGB"):
                return decode_by_pil(data, size)
            check_area(width, height)
            scale = scale_for(height, width, size)
            least = {"min_height": -(-height // scale), "min_width": -(-width // scale), "min_factor": 2} if scale > 1 else {}
            found: Pixels = jpeg.decode_jpeg(data, "RGB", **least)
            return found
        except UnreadableImage:
            raise
        except (ValueError, RuntimeError):
            return decode_by_pil(data, size)

    return decode


def _torchcodec() -> Decode:
    decode_jpeg = importlib.import_module("torchcodec.decoders").decode_jpeg

    def decode(data: bytes, size: int) -> Pixels:
        if data[:2] != JPEG_BEGIN:
            return decode_by_pil(data, size)
        try:
            with no_warnings(), Image.open(io.BytesIO(data)) as image:  # reads the header alone
                width, height, is_plain = *image.size, image.mode in ("RGB", "L") and "exif" not in image.info
            check_area(width, height)
            # TorchCodec has no scaled decoding, and turns images as their EXIF data say.
            if not is_plain or scale_for(height, width, size) > 1:
                return decode_by_pil(data, size)
            return np.ascontiguousarray(decode_jpeg(data).permute(1, 2, 0).numpy())
        except (UnreadableImage, MemoryError):
            raise
        except Exception:  # whatever PIL says of its header, or the decoder of the rest
            return decode_by_pil(data, size)

    return decode


# From the fastest to the slowest; benchmarks/preparation.py measures them.
_LOADERS: dict[str, Callable[[], Decode]] = {"simplejpeg": _simplejpeg, "torchcodec": _torchcodec, "pil": lambda: decode_by_pil}
DECODERS = tuple(_LOADERS)


@cache
def _loaded(name: str) -> Decode | None:
    """Return a decoder; None where its package is not installed, or does not work here."""
    try:
        return _LOADERS[name]()
    except (ImportError, RuntimeError, OSError):
        return None


def installed_decoders() -> tuple[str, ...]:
    """Return the names of the decoders that can be used here, the fastest first."""
    return tuple(name for name in DECODERS if _loaded(name))


@cache
def best_decoder() -> str:
    return next(name for name in DECODERS if _loaded(name))


def find_decoder(name: str) -> Decode:
    if name not in DECODERS:
        raise ValueError(f"unknown decoder {name!r}; {nearest(name, DECODERS)}")
    if found := _loaded(name):
        return found
    raise ValueError(f"the decoder {name!r} is not installed here; installed: {', '.join(installed_decoders())}")


def scaled(pixels: Pixels, size: int) -> Pixels:
    """Scale an image down until its shorter side has `size` pixels. A smaller one stays as it is."""
    height, width = pixels.shape[:2]
    shorter = min(height, width)
    if not size or shorter <= size:
        return np.ascontiguousarray(pixels)
    target = max(size, round(height * size / shorter)), max(size, round(width * size / shorter))
    # With this order of steps the tensor counts as channels-last, and torch's kernel for bytes needs no copy before or after it.
    x = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))[None].permute(0, 3, 1, 2)
    small = F.interpolate(x, target, mode="bilinear", antialias=True)[0].permute(1, 2, 0)
    return np.ascontiguousarray(small.numpy())


def encode_jpeg(pixels: Pixels, quality: int, decoder: str) -> bytes:
    """Return an image as a JPEG file with halved colour resolution, by the package that decodes, where it can encode."""
    if max(pixels.shape) > MOST_JPEG_SIDE:
        raise UnreadableImage(f"a JPEG file cannot hold its {pixels.shape[1]:,}×{pixels.shape[0]:,} pixels")
    if decoder == "simplejpeg":
        found: bytes = importlib.import_module("simplejpeg").encode_jpeg(pixels, quality, "RGB", "420", fastdct=False)
        return found
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
    return buffer.getvalue()


def decode_stored(data: Any, height: int, width: int) -> Pixels:
    """Decode a JPEG file of a prepared folder, whose size is known, by the fastest decoder: here, all give the same pixels."""
    pixels = find_decoder(best_decoder())(bytes(data), 0)
    if pixels.shape != (height, width, 3):
        raise ValueError(f"it is {pixels.shape[1]}×{pixels.shape[0]} and not {width}×{height}")
    return pixels
