"""What is said of a data set before it is prepared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from swamp.preparation import differences_from_published
from swamp.preparation_display import PreparationLines
from swamp.tasks.datasets.imagenet import imagenet_to_prepare
from swamp.tasks.preparing import Preparation, PreparationSettings
from tests.support.made_up_trees import imagenet_tree

SETTINGS = PreparationSettings("imagenet", 32, "raw", 90, "pil")


def test_numbers_are_compared_with_the_published_ones(tmp_path: Path) -> None:
    source = imagenet_to_prepare(str(imagenet_tree(tmp_path)))
    found = {"train": (3, 12), "test": (3, 6), "imagenet-r": (2, 2)}

    def remarks(published: dict[str, tuple[int, int]]) -> list[str]:
        return differences_from_published(Preparation(replace(source, published=published), SETTINGS, tmp_path / "out"))

    assert remarks(found) == []
    assert remarks({**found, "imagenet-r": (200, 2)}) == ["'imagenet-r' has 2 classes and 2 images; published are 200 and 2"]
    assert remarks({**found, "test": (3, 50_000)}) == ["'test' has 3 classes and 6 images; published are 3 and 50,000"]
    (missing,) = remarks({**found, "imagenet-sketch": (1000, 50_889)})
    assert missing.startswith("ImageNet-Sketch was not found")


def test_progress_is_told_with_the_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr("swamp.preparation_display.time.monotonic", lambda: now)
    lines = PreparationLines(10_000)
    now += 5
    lines(1000)
    assert capsys.readouterr().err == ""
    now += 5
    lines(1000)
    assert capsys.readouterr().err == "2,000 of 10,000 images, 200 images/s, 40 s left\n"
    lines(-500)  # A worker died, and its images are prepared again.
    assert lines.note == "150 images/s, 57 s left"
