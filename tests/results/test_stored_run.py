from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

import swamp
from swamp.results.series import by_recipe, make_series
from swamp.results.stored_run import read_run, read_runs
from tests.support.made_up_runs import make_run


def test_a_damaged_run_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    make_run(tmp_path / "group" / "seed-0", "imp", 0)
    broken = make_run(tmp_path / "group" / "seed-1", "imp", 1)
    header = make_run(tmp_path / "header", "imp", 2) / "run.json"
    altered = make_run(tmp_path / "altered", "imp", 3) / "results.json"
    strange = make_run(tmp_path / "strange", "imp", 4)
    (broken / "results.json").write_text("[{")
    (header.parent / ".run.json").unlink()
    header.write_text(header.read_text().replace("0.1", "0.2"))
    rows = json.loads(altered.read_text())
    rows[2]["metrics"]["accuracy"] = 1.0
    altered.write_text(json.dumps(rows))
    (strange / "run.json").write_text(json.dumps([1]))
    (strange / ".run.json").write_text(json.dumps([1]))
    make_run(tmp_path / "lost", "imp", 5)
    for name in ("run.json", ".run.json"):
        (tmp_path / "lost" / name).unlink()
    runs, damages = read_runs([tmp_path / "group", tmp_path / "header", tmp_path / "altered", strange, tmp_path / "lost"])
    assert [reading.directory.name for reading in runs] == ["seed-0"]
    why = {damage.directory.name: damage.why for damage in damages}
    assert list(why) == ["seed-1", "header", "altered", "strange", "lost"]
    assert all(damage.damaged for damage in damages)
    assert "results.json is damaged" in why["seed-1"]
    assert "run.json is damaged (its checksum is wrong)" in why["header"]
    assert "altered at cycle 2" in why["altered"]
    assert "run.json" in why["lost"]


def test_a_run_that_was_made_again_is_shown_once(tmp_path: Path) -> None:
    first, again = make_run(tmp_path / "run"), make_run(tmp_path / "run-again")
    runs, (twin,) = read_runs([tmp_path])
    assert [reading.directory for reading in runs] == [first]
    assert (twin.directory, twin.damaged) == (again, False)
    assert f"the seed of {first}, which is shown" in twin.why


def test_what_changed_after_the_end_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text('{"training": "ticket", "epoch": 0, "loss": NaN}\nnonsense\n[]\n{"training": 3, "epoch": 1}\n')
    (read,), damages = read_runs([run])
    assert not damages
    assert read.warnings == (f"{run / 'metrics.jsonl'} changed since the run was finished; training curves are left out",)
    assert list(read.epochs()) == []
    unfinished = make_run(tmp_path / "unfinished", finished=False)
    (unfinished / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text())
    assert [record["training"] for record in read_run(unfinished).epochs()] == ["ticket"]  # lines that cannot be read are skipped


def test_what_an_unfinished_run_still_lacks(tmp_path: Path) -> None:
    half = make_run(tmp_path / "half", rows=3, finished=False)
    none = make_run(tmp_path / "none", rows=0, finished=False, seed=1)
    whole = make_run(tmp_path / "whole", seed=2)
    (none / "results.json").unlink()
    (none / "metrics.jsonl").unlink()
    runs, damages = read_runs([half, none, whole, whole])
    assert not damages
    assert [reading.missing_cycles() for reading in runs] == [[3, 4, 5], [], []]
    assert [len(reading.rows) for reading in runs] == [3, 0, 6]
    assert runs[0].seconds() == 3.5


def test_tasks_of_ones_own_are_not_taken_for_one_another(tmp_path: Path) -> None:
    """They share recipe, settings and seed, and nothing else."""
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    short: dict[str, Any] = {"method": "imp", "cycle": {"epochs": 1}, "pruning": {"cycles": 1}, "quiet": True}
    for name, data in {"classes": (x, (x[:, 0] > 0).long()), "numbers": (x, x[:, :2])}.items():
        for seed in (0, 1):  # which draw an init each, and that is no part of the problem
            swamp.prune(nn.Linear(4, 2), data, data, out=tmp_path / name / f"seed-{seed}", seed=seed, engine="sequential", **short)
    runs, left_out = read_runs([tmp_path / "classes", tmp_path / "numbers"])
    assert (len(runs), left_out) == (4, [])
    series = make_series(runs)
    assert [one.seeds for one in series] == [[0, 1], [0, 1]]
    assert len(by_recipe(series)) == 2
