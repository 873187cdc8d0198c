"""One contract over every engine: they leave the same files with the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from swamp.engines import engine_modules
from swamp.runs.config import Config
from tests.support.runs import contents, iterate

Make = Callable[..., Config]


# Of the update rules one that changes gradients and one that changes masks and is handed on; the others are in `make test-slow`.
@pytest.mark.parametrize(
    "method", ["imp-sam", "rigl-swamp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("imp", "swamp", "gradual", "dst"))]
)
def test_engines_agree_bit_for_bit(quick: Make, tmp_path: Path, method: str) -> None:
    here = [module for module in engine_modules().values() if not module.needs_cluster]
    names = [module.name for module in here if "cpu" in (module.devices or ["cpu"])]
    assert {"processes", "sequential"} <= set(names)
    results = {}
    for name in names:
        list(iterate(quick(method=method, engine=name, checkpoint_seconds=0.0), tmp_path / name))
        results[name] = contents(tmp_path / name)
        assert not (tmp_path / name / "work").exists()
    for name in names:
        assert results[name] == results["sequential"], name


@pytest.mark.parametrize("workers", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_the_number_of_workers_changes_nothing(quick: Make, tmp_path: Path, workers: int) -> None:
    settings = {"methods__swamp__particles": 3, "pruning__cycles": 1}
    list(iterate(quick(engine="processes", engines__processes__workers=workers, **settings), tmp_path / "workers"))
    list(iterate(quick(**settings), tmp_path / "one"))
    assert contents(tmp_path / "workers") == contents(tmp_path / "one")


@pytest.mark.slow
def test_compiled_steps_agree_bit_for_bit_too(quick: Make, tmp_path: Path) -> None:
    for name in ("sequential", "processes", "again"):
        engine = "sequential" if name == "again" else name
        list(iterate(quick(engine=engine, compile=True, device="cpu", pruning__cycles=1), tmp_path / name))
    assert contents(tmp_path / "sequential") == contents(tmp_path / "processes") == contents(tmp_path / "again")
    list(iterate(quick(device="cpu", pruning__cycles=1), tmp_path / "plain"))
    objects = [{path.name for path in (tmp_path / name / "objects").iterdir()} for name in ("sequential", "plain")]
    assert len(objects[0] & objects[1]) == 3  # the init and the mask that prunes nothing: no compiled result has a plain one's key
