"""A batch shared by several ranks gives the numbers of one rank alone, whatever the rule."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    folder = tmp_path_factory.mktemp("sharing")
    ranks = [subprocess.Popen([sys.executable, "-m", "tests.training.sharing", str(rank), str(folder)]) for rank in range(3)]
    try:
        assert [rank.wait(timeout=120) for rank in ranks] == [0, 0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(3)]


NAMES = ["plain", "swa", "accumulate", "clipped adamw", "sam", "rigl", "dst", "dear"]


@pytest.mark.parametrize("name", [*(f"{name} by {size}" for name in NAMES for size in (2, 3)), "local by 2", "local by 3", "float64"])
def test_a_shared_batch_gives_the_numbers_of_a_whole_one(found: list[dict[str, float]], name: str) -> None:
    differences = [differences[name] for differences in found if name in differences]
    assert len(differences) >= 2
    assert max(differences) < 1e-3, differences  # a unit whose inputs are nearly all pruned has next to no variance


def test_what_is_compared_can_differ(found: list[dict[str, float]]) -> None:
    """BatchNorm over parts of a batch is another training."""
    assert found[0]["parts against the whole"] > 1e-1


def test_dropout_depends_on_nothing_but_noise_and_share(found: list[dict[str, float]]) -> None:
    assert found[0]["dropout, again"] == 0.0
    assert found[0]["draws of the first share"] == 0.0  # as one rank alone draws
    assert found[0]["draws of the second share"] != 0.0
