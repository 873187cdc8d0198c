"""A batch shared by several ranks gives the numbers of one rank alone, whatever the rule."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

NAMES = ["plain", "swa", "accumulate", "clipped adamw", "sam", "rigl", "dst", "cut", "local", "own optimizer"]
EQUAL = [*(f"{name} by {size}" for name in NAMES for size in (2, 3)), "float64", "local and called twice"]


def test_a_shared_batch_gives_the_numbers_of_a_whole_one(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "tests.support.sharing", str(tmp_path)], check=True, timeout=120)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    for differences in found[:2]:
        # A unit whose inputs are nearly all pruned has hardly any variance, and large rounding errors.
        assert {name: differences[name] for name in EQUAL if not differences[name] < 1e-3} == {}
        assert differences["float64"] < 1e-10
        assert differences["parts against the whole"] > 1e-1  # BatchNorm over parts is another training: what is compared can differ
        assert differences["dropout, again"] == 0.0
        assert differences["draws of the first share"] == 0.0  # as one rank alone draws
        assert differences["draws of the second share"] != 0.0
    assert max(found[2].values()) < 1e-3
