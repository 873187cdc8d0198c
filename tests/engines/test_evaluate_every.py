"""Evaluations while a network trains are logged with its epochs, and change not a single bit of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from swamp.core.rules import DST
from swamp.core.schedules import SWA
from swamp.engines import graphed, sequential
from swamp.engines.engine import Progress
from swamp.runs.config import Config, config_hash
from tests.support.listeners import Heard
from tests.support.runs import iterate
from tests.support.trainings import BlobsOnDevice, graphed_on_cpu, make_engine_context, make_jobs

CPU = torch.device("cpu")


class Drawing(BlobsOnDevice):
    """Blobs whose evaluation draws random numbers and leaves the model in another mode."""

    def evaluate(self, model: Any, split: str) -> dict[str, float]:
        found = super().evaluate(model, split)
        model.train()
        return {**found, "drawn": float(torch.rand(())), "endless": float("inf")}


@pytest.mark.parametrize("name", ["sequential", "graphed"])
@pytest.mark.parametrize("changes", [{"swa": SWA(start=0.4, learning_rate=0.01)}, {"rule": DST(alpha=1e-3)}])
def test_evaluating_changes_nothing(name: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    graphed_on_cpu(monkeypatch)
    task = Drawing(dropout=0.5)
    jobs = make_jobs(task, **changes)[:1]
    module: Any = {"sequential": sequential, "graphed": graphed}[name]
    settings = module.Config(compile=False) if name == "graphed" else module.Config()
    found = []
    for every in (0, 2):
        context = replace(make_engine_context(task, CPU), evaluate_every=every)
        heard: list[Progress] = []
        (solution,) = module.build(context, settings).train(jobs, heard.append)
        found.append((solution.load().digest(), [record["loss"] for record in solution.history]))
        measured = [progress.record.get("validation.accuracy") for progress in heard]
        assert [value is not None for value in measured] == [False, bool(every), bool(every)]  # after two epochs, and at the end
        assert not any("endless" in key for record in solution.history for key in record)
        assert [record.get("validation.accuracy") for record in solution.history] == measured
    assert found[0] == found[1]


def test_the_setting_decides_no_numbers_and_its_curves_are_logged(quick: Callable[..., Config], tmp_path: Path) -> None:
    config, heard = quick(evaluate_every=1), Heard()
    assert config_hash(config) == config_hash(quick())
    list(iterate(config, tmp_path / "run", listener=heard))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines
    assert all(0 <= line["test.accuracy"] <= 1 for line in lines)
    assert all("test.accuracy" in event.record for event in heard.events)
