from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from swamp.tasks.datasets.jpeg import centre_view, random_box, read_image, to_tensor, training_view
from tests.support.made_up_datasets import gradient_jpeg, jpeg, write


def ramp(width: int, height: int) -> Image.Image:
    """Red counts columns, green counts rows."""
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([x, y, 0 * x], 2).astype(np.uint8))


@pytest.mark.parametrize(("mode", "colour"), [("L", 90), ("CMYK", (0, 0, 0, 165))])
def test_all_kinds_of_jpeg_become_rgb(mode: str, colour: tuple[int, int, int] | int, tmp_path: Path) -> None:
    write(tmp_path / "a.JPEG", jpeg(20, 10, colour, mode))
    x = to_tensor(read_image(tmp_path / "a.JPEG"))
    assert x.shape == (3, 10, 20)
    assert x.dtype == torch.uint8
    assert (x.int() - 90).abs().max() <= 3


def test_a_png_under_another_name(tmp_path: Path) -> None:
    ramp(4, 4).save(tmp_path / "a.JPEG", "PNG")
    assert to_tensor(read_image(tmp_path / "a.JPEG"))[0, 0].tolist() == [0, 1, 2, 3]


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 257, 32768, 65535]], np.uint16)).save(tmp_path / "a.png")
    assert to_tensor(read_image(tmp_path / "a.png"))[:, 0].tolist() == [[0, 1, 128, 255]] * 3


def test_files_that_are_no_images(tmp_path: Path) -> None:
    write(tmp_path / "a.JPEG", b"text")
    with pytest.raises(ValueError, match=r"a\.JPEG is no readable image"):
        read_image(tmp_path / "a.JPEG")
    with pytest.raises(ValueError, match=r"b\.JPEG is missing"):
        read_image(tmp_path / "b.JPEG")


def test_centre_view_by_hand() -> None:
    # 8·256/224 rounds to 9; the shorter side is 9 already, so that nothing is scaled and the middle 8×8 is cut out
    x = to_tensor(centre_view(ramp(21, 9), 8))
    assert x.shape == (3, 8, 8)
    assert x[0, 0].tolist() == list(range(6, 14))  # round(6.5) is 6
    assert x[1, :, 0].tolist() == list(range(8))


def test_centre_view_scales_the_shorter_side() -> None:
    view = centre_view(Image.new("RGB", (500, 375)), 224)
    assert view.size == (224, 224)
    assert centre_view(Image.new("RGB", (7, 900)), 224).size == (224, 224)


def test_boxes_stay_inside_and_have_the_shapes_they_should() -> None:
    draw = random.Random(0)
    areas = []
    for _ in range(500):
        left, top, right, bottom = random_box(500, 375, draw)
        assert 0 <= left < right <= 500
        assert 0 <= top < bottom <= 375
        assert 0.74 < (right - left) / (bottom - top) < 1.35
        areas.append((right - left) * (bottom - top) / (500 * 375))
    assert 0.079 < min(areas) < 0.1
    assert max(areas) > 0.75


def test_very_narrow_images_take_the_middle() -> None:
    assert random_box(10, 1000, random.Random(0)) == (0, 493, 10, 506)
    assert random_box(1000, 10, random.Random(0)) == (493, 0, 506, 10)


def test_training_views_follow_from_the_seed(tmp_path: Path) -> None:
    write(tmp_path / "a.JPEG", gradient_jpeg(60, 40))
    image = read_image(tmp_path / "a.JPEG")
    views = [to_tensor(training_view(image, 16, True, seed)) for seed in (5, 5, 6)]
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])


def test_a_training_view_is_the_scaled_box_mirrored_or_not() -> None:
    image = ramp(60, 40)
    mirrored = 0
    for seed in range(20):
        plain, flipped = (to_tensor(training_view(image, 8, flip, seed)) for flip in (False, True))
        draw = random.Random(seed)
        if draw.random() < 0.5:
            assert torch.equal(flipped, plain.flip(-1))
            mirrored += 1
        else:
            assert torch.equal(flipped, plain)
        left, top, right, bottom = random_box(60, 40, draw)
        # a ramp scaled is a ramp: each pixel is the mean of the columns (rows) that it covers
        expected = left + (np.arange(8) + 0.5) * (right - left) / 8 - 0.5
        assert np.abs(plain[0, 4].numpy() - expected).max() <= 1
        expected = top + (np.arange(8) + 0.5) * (bottom - top) / 8 - 0.5
        assert np.abs(plain[1, :, 4].numpy() - expected).max() <= 1
    assert 0 < mirrored < 20
