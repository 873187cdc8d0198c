"""`swamp.prune_with`: what was stopped or killed goes on with the same bytes, and no other loop goes on in its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import swamp
from swamp.core.state_dicts import pack
from swamp.results.stored_run import read_run
from swamp.store.directory import Store
from tests.support.loops import (
    EPOCHS,
    by_lightning,
    loop,
    plain,
    prune,
    step,
    without_keep,
)


def test_exceptions_of_the_loop_are_its_own_and_lose_nothing(tmp_path: Path) -> None:
    broken = [True]

    def breaks(model: nn.Module, run: swamp.LoopTraining) -> None:
        if run.cycle == 1 and broken:
            raise ZeroDivisionError("in the middle")
        trained.append(run.cycle)
        loop(model, run)

    trained: list[int] = []
    with pytest.raises(ZeroDivisionError, match="in the middle"):
        prune(breaks, tmp_path / "run")
    assert read_run(tmp_path / "run").resume_command == "the script that calls swamp.prune_with, started again"
    assert trained == [0, 0]  # the ticket and the first cycle
    broken.clear()
    with pytest.raises(ValueError, match="began with another training loop"):  # A list that the loop holds has changed.
        prune(breaks, tmp_path / "run")


LOOPS = {train.__name__: train for train in (loop, without_keep, by_lightning)}
SCRIPT = """
import os, signal, sys
import torch
from torch import nn
sys.path[:0] = [{tests!r}]
import swamp
from tests.support.loops import by_lightning, loop, plain, evaluate, without_keep

count = 0


def killed_after(epochs):
    original = swamp.LoopTraining.epoch_end

    def epoch_end(self, epoch, loss=None):
        global count
        done = original(self, epoch, loss)
        count += 1
        print(self.stage, self.cycle, epoch, flush=True)
        if count == epochs:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    swamp.LoopTraining.epoch_end = epoch_end


killed_after(int(sys.argv[2]))
options = {{"pruning": {{"cycles": 1}}, "device": "cpu", "checkpoint_seconds": 0}}
swamp.prune_with({loop}, plain, evaluate, method="imp", out=sys.argv[1], quiet=True, **options)
"""


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning 2.6 uses a class that torch 2.13 gives up
@pytest.mark.parametrize(
    ("train", "kills", "repeated"),
    # The ticket has 4 epochs, and its state is taken after the first of them; then comes the first cycle. What is killed a second time is
    # killed three epochs later.
    [
        ("loop", (6,), 0),
        pytest.param("loop", (3, 3), 0, marks=pytest.mark.slow),
        pytest.param("without_keep", (6,), 2, marks=pytest.mark.slow),
        pytest.param("by_lightning", (3,), 0, marks=pytest.mark.slow),
        pytest.param("by_lightning", (6,), 0, marks=pytest.mark.slow),
    ],
)
def test_a_killed_loop_goes_on_with_the_same_bytes(train: str, kills: tuple[int, ...], repeated: int, tmp_path: Path) -> None:
    if train == "by_lightning":
        pytest.importorskip("lightning")
    script = SCRIPT.format(tests=str(Path(__file__).parent.parent), loop=train)
    options: dict[str, Any] = {"pruning": {"cycles": 1}, "checkpoint_seconds": 0}
    prune(LOOPS[train], tmp_path / "whole", **options)
    said = []
    for stop in (*kills, 1000):
        arguments = [sys.executable, "-c", script, str(tmp_path / "killed"), str(stop)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == (-signal.SIGKILL if stop < 1000 else 0), done.stderr
        said += done.stdout.splitlines()
    assert len(said) == 3 * EPOCHS + repeated  # of the ticket and of two cycles
    weights = [swamp.load(tmp_path / name, model=plain()).model.state_dict() for name in ("whole", "killed")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(("stage", "cycle"), [("ticket", 0), ("cycle", 1)])
def test_what_was_kept_is_restored_in_any_stage(stage: str, cycle: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(model: nn.Module, run: swamp.LoopTraining) -> None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
        run.keep(optimizer=optimizer, schedule=schedule)
        for epoch in range(run.first_epoch, EPOCHS):
            step(model, optimizer, torch.randperm(96)[:32])
            schedule.step()
            run.epoch_end(epoch)
            if (run.stage, run.cycle, epoch) == (stage, cycle, 2) and os.environ.pop("STOP", ""):
                raise KeyError("stopped")

    whole = prune(train, tmp_path / "whole", checkpoint_seconds=0)
    monkeypatch.setenv("STOP", "1")
    with pytest.raises(KeyError, match="stopped"):
        prune(train, tmp_path / "stopped", checkpoint_seconds=0)
    again = prune(train, tmp_path / "stopped", checkpoint_seconds=0)
    weights = [found.model.state_dict() for found in (whole, again)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_an_edited_method_of_the_model_is_another_loop(tmp_path: Path) -> None:
    """Lightning's modules make their optimizer themselves, which neither train nor forward shows."""

    def first(self: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def second(self: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.2)

    def train(model: Any, run: swamp.LoopTraining) -> None:
        optimizer = model.configure_optimizers()
        for epoch in range(2):
            step(model, optimizer, torch.randperm(96)[:32])
            run.epoch_end(epoch)

    nets = [type("Net", (nn.Linear,), {"configure_optimizers": method}) for method in (first, second)]
    prune(train, tmp_path / "run", make=lambda: nets[0](6, 2))
    with pytest.raises(ValueError, match="began with another"):
        prune(train, tmp_path / "run", make=lambda: nets[1](6, 2))


def test_a_checkpoint_that_does_not_fit_gets_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = swamp.LoopTraining.epoch_end

    def stop_after_two(run: swamp.LoopTraining, epoch: int, loss: float | None = None) -> bool:
        if epoch == 2:
            raise KeyboardInterrupt
        return original(run, epoch, loss)

    monkeypatch.setattr(swamp.LoopTraining, "epoch_end", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        prune(loop, tmp_path / "run", checkpoint_seconds=0)
    store, (file,) = Store(tmp_path / "run"), (tmp_path / "run/work").glob("*.checkpoint")
    found = store.read_checkpoint(file.stem)
    assert found is not None
    others = {name: tensor for name, tensor in found.tensors.items() if not name.startswith("kept/")}
    others |= {f"kept/{name}": tensor for name, tensor in pack({"another": {}}).items()}
    lacking = [{name: found.tensors[name] for name in found.tensors if name != one} for one in ("kept/text", "parameter/0.weight")]
    for tensors in (others, *lacking):
        store.write_checkpoint(file.stem, replace(found, tensors=tensors))
        with pytest.raises(ValueError, match=r"the checkpoint of ticket does not fit its training .* starts over"):
            prune(loop, tmp_path / "run")
