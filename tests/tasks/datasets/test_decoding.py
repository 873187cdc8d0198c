from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from swamp.tasks.datasets import decoding
from swamp.tasks.datasets.decoding import (
    DECODERS,
    Pixels,
    UnreadableImage,
    decode_stored,
    encode_jpeg,
    find_decoder,
    installed_decoders,
    scale_for,
    scaled,
)
from tests.support.made_up_datasets import gradient_jpeg

INSTALLED = installed_decoders()


def smooth(width: int, height: int, period: int = 8) -> Image.Image:
    small = np.random.default_rng(0).integers(0, 256, (height // period + 1, width // period + 1, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def by_pil(data: bytes) -> Pixels:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_there_is_always_a_decoder() -> None:
    assert INSTALLED[-1] == "pil"
    assert decoding.best_decoder() == INSTALLED[0]
    with pytest.raises(ValueError, match="unknown decoder 'simplejpg'; did you mean 'simplejpeg'"):
        find_decoder("simplejpg")


def test_a_decoder_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("swamp.tasks.datasets.decoding.importlib.import_module", missing)
    decoding._loaded.cache_clear()
    try:
        with pytest.raises(ValueError, match="the decoder 'simplejpeg' is not installed here; installed: pil"):
            find_decoder("simplejpeg")
    finally:
        decoding._loaded.cache_clear()


@pytest.mark.parametrize("decoder", INSTALLED)
@pytest.mark.parametrize(
    ("mode", "options"),
    [("RGB", {}), ("RGB", {"progressive": True}), ("RGB", {"subsampling": "4:4:4"}), ("L", {}), ("CMYK", {})],
    ids=["plain", "progressive", "444", "grey", "cmyk"],
)
def test_jpeg_files_of_all_kinds_are_as_pil_reads_them(mode: str, options: dict[str, Any], decoder: str) -> None:
    data = encoded(smooth(90, 70).convert(mode), quality=90, **options)
    pixels = find_decoder(decoder)(data, 0)
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, by_pil(data))


@pytest.mark.parametrize("decoder", INSTALLED)
@pytest.mark.parametrize(("width", "height"), [(301, 203), (200, 310), (640, 480)])
def test_scaled_decoding_keeps_the_shorter_side_long_enough_and_looks_alike(width: int, height: int, decoder: str) -> None:
    data = encoded(smooth(width, height, period=80), quality=95)
    pixels = find_decoder(decoder)(data, 50)
    assert 50 <= min(pixels.shape[:2]) < 100
    assert np.array_equal(pixels, find_decoder("pil")(data, 50))
    image = Image.open(io.BytesIO(data)).resize((pixels.shape[1], pixels.shape[0]), Image.Resampling.BILINEAR)
    assert np.abs(pixels.astype(int) - np.asarray(image)).mean() < 2.5


def test_divisions() -> None:
    assert [scale_for(height, width, 256) for height, width in ((375, 500), (511, 600), (512, 600), (1024, 1024), (4000, 2048))] == [
        1,
        2,
        2,
        4,
        8,
    ]
    assert scale_for(4000, 4000, 0) == 1


@pytest.mark.parametrize("decoder", INSTALLED)
@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (Image.new("P", (9, 7), 5), "PNG"),
        (Image.new("RGBA", (9, 7), (10, 20, 30, 40)), "PNG"),
        (Image.new("LA", (9, 7), (80, 3)), "PNG"),
        (Image.new("1", (9, 7), 1), "PNG"),
        (Image.new("RGB", (9, 7), (1, 2, 3)), "BMP"),
    ],
    ids=["palette", "transparent", "grey-transparent", "bits", "bmp"],
)
def test_other_kinds_become_rgb(image: Image.Image, kind: str, decoder: str) -> None:
    pixels = find_decoder(decoder)(encoded(image, kind), 0)
    assert pixels.shape == (7, 9, 3)
    assert (pixels == np.asarray(image.convert("RGB"))).all()


def test_sixteen_bits_are_scaled_and_not_cut_off() -> None:
    values = np.array([[0, 256, 257, 32768, 65535]], np.uint16)
    grey = find_decoder("pil")(encoded(Image.fromarray(values), "PNG"), 0)
    assert grey[0, :, 0].tolist() == [0, 1, 1, 128, 255]
    assert (grey[..., 0] == grey[..., 2]).all()


@pytest.mark.parametrize("decoder", INSTALLED)
@pytest.mark.parametrize("orientation", [3, 6])  # by 180 and by 90 degrees
def test_rotation_by_exif_is_ignored(orientation: int, decoder: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = smooth(40, 30)
    assert np.array_equal(find_decoder(decoder)(encoded(image, exif=exif), 0), by_pil(encoded(image)))


def png_header(width: int, height: int) -> bytes:
    """The beginning of a PNG file that claims a size."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"\0")
    chunks = [struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in (header, data)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


WHOLE = gradient_jpeg(64, 48)


def jpeg_of_size(width: int, height: int) -> bytes:
    """A JPEG file whose header claims another size."""
    at = WHOLE.index(b"\xff\xc0") + 5
    return WHOLE[:at] + struct.pack(">HH", height, width) + WHOLE[at + 4 :]


@pytest.mark.parametrize("decoder", INSTALLED)
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is no image of a known kind"),
        (b"<html>", "it is no image of a known kind"),
        (WHOLE[: len(WHOLE) // 2], "[Tt]runcated"),
        (WHOLE[:-2], "truncated"),
        (WHOLE[:30], "[Tt]runcated"),
        (jpeg_of_size(13_000, 12_000), r"it has 13,000×12,000 pixels, more than 134,217,728"),
        (jpeg_of_size(65_000, 65_000), r"65,000×65,000 pixels, more than|exceeds limit of"),
        (png_header(13_000, 12_000), r"it has 13,000×12,000 pixels, more than 134,217,728"),
        (encoded(smooth(30, 30), "PNG")[:-40], "[Tt]runcated"),
    ],
    ids=["empty", "text", "half", "no-end", "header", "large-jpeg", "enormous-jpeg", "large-png", "half-png"],
)
def test_what_cannot_be_read_is_said(data: bytes, why: str, decoder: str) -> None:
    with pytest.raises(UnreadableImage, match=why) as caught:
        find_decoder(decoder)(data, 256)
    assert "\n" not in str(caught.value)


def test_images_are_scaled_as_pil_does_it_and_never_enlarged() -> None:
    for width, height in ((90, 61), (61, 90), (333, 500), (64, 64)):
        image = smooth(width, height)
        small = scaled(np.asarray(image), 32)
        assert min(small.shape[:2]) == 32
        expected = np.asarray(image.resize((small.shape[1], small.shape[0]), Image.Resampling.BILINEAR))
        assert np.abs(small.astype(int) - expected).max() <= 1
        assert abs(small.shape[0] / small.shape[1] - height / width) < 0.03
    tiny = np.asarray(smooth(20, 300))
    assert np.array_equal(scaled(tiny, 32), tiny)
    assert scaled(np.asarray(smooth(33, 3000)), 32).shape == (2909, 32, 3)


@pytest.mark.parametrize("encoder", INSTALLED)
def test_all_decoders_read_stored_files_alike(encoder: str) -> None:
    data = encode_jpeg(np.asarray(smooth(91, 70)), 90, encoder)
    stored = decode_stored(np.frombuffer(data, np.uint8), 70, 91)
    for decoder in DECODERS:
        if decoder in INSTALLED:
            assert np.array_equal(find_decoder(decoder)(data, 0), stored)


@pytest.mark.parametrize("decoder", INSTALLED)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP", "GIF"])
def test_damaged_bytes_give_pixels_or_one_sentence(kind: str, decoder: str) -> None:
    draw, whole = np.random.default_rng(0), np.frombuffer(encoded(smooth(40, 30), kind), np.uint8)
    reasons = []
    for _ in range(60):
        data = whole.copy()
        data[draw.integers(0, min(len(data), 700), 4)] = draw.integers(0, 256, 4)
        try:
            assert find_decoder(decoder)(data.tobytes(), 16).shape[2] == 3
        except UnreadableImage as error:
            reasons.append(str(error))
    assert reasons or kind == "BMP"  # Most of a BMP file is pixels.
    assert not [reason for reason in reasons if "\n" in reason]


def test_what_a_jpeg_file_cannot_hold_is_said() -> None:
    with pytest.raises(UnreadableImage, match="a JPEG file cannot hold its 70,000×1 pixels"):
        encode_jpeg(np.zeros((1, 70_000, 3), np.uint8), 90, "pil")
