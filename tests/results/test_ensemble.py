from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from swamp.results.ensemble import average_predictions
from swamp.results.stored_run import read_run
from swamp.runs.config import Config
from swamp.runs.opening import open_task
from swamp.runs.stored import read_config
from swamp.store.directory import Store
from swamp.store.records import read_rows
from tests.support.cli import call
from tests.support.runs import iterate

Make = Callable[..., Config]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    from swamp.runs.config import build_config
    from tests.support.runs import QUICK

    settings: dict[str, Any] = {**QUICK, "method": "imp", "pruning.cycles": 1, "cycle.epochs": 4}
    settings.pop("methods.swamp.particles")
    root = tmp_path_factory.mktemp("group")
    for seed in (0, 1, 2):
        list(iterate(build_config("digits", {**settings, "seed": seed}), root / f"seed-{seed}"))
    return [root / f"seed-{seed}" for seed in (0, 1, 2)]


def test_an_ensemble_is_the_mean_of_probabilities(runs: list[Path]) -> None:
    rows = list(average_predictions([*map(read_run, runs)]))
    assert [row.cycle for row in rows] == [0, 1]
    task: Any = open_task(read_config(runs[0]))
    images, labels = task.source.on("test", torch.device("cpu"))
    x = task.source.normalised(images)
    for row in rows:
        total = torch.zeros(len(labels), 10, dtype=torch.float64)
        for path in runs:
            model = task.model().eval()
            result = next(result for result in read_rows(path) if result.cycle == row.cycle)
            Store(path).load_state(result.solution).into(model)
            with torch.no_grad():
                total += model(x).double().softmax(1) / 3
        assert row.metrics["accuracy"] == pytest.approx(float((total.argmax(1) == labels).double().mean()))
        assert row.metrics["nll"] == pytest.approx(float(-total[torch.arange(len(labels)), labels].log().mean()), rel=1e-4)
        assert len(row.members) == 3
        assert row.macs == pytest.approx(3 * next(r.macs for r in read_rows(runs[0]) if r.cycle == row.cycle), rel=0.2)


def test_from_the_command_line(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    status, table, _ = call(capsys, "ensemble", runs[0].parent)
    assert status == 0
    assert "Ensemble of 3 networks" in table
    status, rows, _ = call(capsys, "ensemble", runs[0].parent, "--json")
    assert status == 0
    assert [row["cycle"] for row in json.loads(rows)] == [0, 1]


def test_what_cannot_be_averaged_is_said(quick: Make, runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 2 runs"):
        list(average_predictions([read_run(runs[0])]))
    with pytest.raises(ValueError, match="a seed of its own"):
        list(average_predictions([read_run(runs[0]), read_run(runs[0])]))
    list(iterate(quick(method="imp", seed=7, pruning__cycles=0, tasks__image__batch_size=100), tmp_path / "other"))
    with pytest.raises(ValueError, match="another model or other data"):
        list(average_predictions([read_run(runs[0]), read_run(tmp_path / "other")]))
    list(iterate(quick(method="imp", seed=9, pruning__cycles=1, cycle__epochs=3), tmp_path / "longer"))
    with pytest.raises(ValueError, match=r"made with other settings than .*: cycle\.epochs"):
        list(average_predictions([read_run(runs[0]), read_run(tmp_path / "longer")]))
    list(iterate(quick(method="imp", seed=8, pruning__cycles=1, keep="last", cycle__epochs=4), tmp_path / "last"))
    with pytest.raises(ValueError, match=r"weights of cycle 0 are not in .* keep = 'averages'"):
        list(average_predictions([read_run(runs[0]), read_run(tmp_path / "last")]))
