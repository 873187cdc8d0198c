"""Runs that share an engine leave what they leave alone."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from swamp import cli
from swamp.core.job import Job
from swamp.engines import graphed, sequential
from swamp.engines.engine import Engine, EngineContext, Progress, SolutionStore
from swamp.runs import group
from swamp.runs.config import Config
from swamp.runs.group import MemberEngine, groups_of, run_together
from swamp.runs.opening import PreparedRun, RunRequest, prepare
from swamp.runs.progress import Listener
from swamp.store.records import RowRecord, read_rows
from swamp.training.train import Diverged
from tests.support.runs import contents, iterate
from tests.support.trainings import graphed_on_cpu, note_busy_particles

Make = Callable[..., Config]
GRAPHED = {"engine": "graphed", "engines__graphed__compile": False, "device": "cpu", "precision": "float32"}


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graphed engine with steps that are called instead of captured."""
    graphed_on_cpu(monkeypatch)


def prepared(runs: list[tuple[Config, Path]], cache: Path | None = None) -> list[PreparedRun]:
    return prepare([RunRequest(config, directory) for config, directory in runs], cache)


def run_all(runs: list[tuple[Config, Path]], listener: Any = None) -> list[BaseException | None]:
    return run_together(prepared(runs), [listener or Listener()] * len(runs))


@pytest.mark.usefixtures("on_cpu")
def test_seeds_side_by_side_leave_the_bytes_of_seeds_in_turn(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = note_busy_particles(monkeypatch)
    means, averaged = [], graphed.Graphed.averaged
    monkeypatch.setattr(graphed.Graphed, "averaged", lambda self, *given: [means.append(self), averaged(self, *given)][1])
    configs = [quick(seed=seed, **GRAPHED) for seed in range(3)]
    for config in configs:
        list(iterate(config, tmp_path / f"alone-{config.seed}"))
    assert {len(busy) for busy in together} == {1, 2}  # tickets, then particles
    num_epochs = len(together)
    together.clear()
    assert run_all([(config, tmp_path / f"shared-{config.seed}") for config in configs]) == [None] * 3
    assert len(together) == num_epochs
    assert max(map(len, together)) == 6
    assert len(means) == 2 * 9  # one a cycle, alone and together
    assert len(set(means[9:])) == 1  # by the engine of all of them
    for seed in range(3):
        assert contents(tmp_path / f"shared-{seed}") == contents(tmp_path / f"alone-{seed}")


def test_methods_side_by_side_train_their_ticket_once(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sequential as the engine that is shared: the group works with any."""
    settled = {"device": "cpu", "precision": "float32"}
    configs = {method: quick(method=method, **settled) for method in ("imp", "swamp")}
    for method, config in configs.items():
        list(iterate(config, tmp_path / "alone" / method))
    keys: list[str] = []
    train_job = sequential.train_job  # type: ignore[attr-defined]

    def noted(engine_context: EngineContext, job: Job, report: Any) -> Any:
        keys.append(job.key)
        return train_job(engine_context, job, report)

    monkeypatch.setattr(sequential, "train_job", noted)
    assert run_all([(config, tmp_path / "shared" / method) for method, config in configs.items()]) == [None, None]
    assert len(keys) == len(set(keys)) == 1 + 3 + 6
    for method in configs:
        assert contents(tmp_path / "shared" / method) == contents(tmp_path / "alone" / method)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("keep", ["all", pytest.param("last", marks=pytest.mark.slow)])
def test_who_has_what_it_waits_for_goes_on_while_the_others_train(quick: Make, tmp_path: Path, keep: str) -> None:
    """The short one is over before the long one's first cycle is. One ticket serves both."""
    longest = {"cycle__epochs": 11}
    configs = {
        "short": quick(keep=keep, pruning__rewind="lr", **GRAPHED),
        "long": quick(keep=keep, pruning__rewind="lr", **longest, **GRAPHED),
        "seed": quick(keep=keep, seed=1, **GRAPHED),
    }
    for name, config in configs.items():
        list(iterate(config, tmp_path / "alone" / name))
    events: list[tuple[str, int]] = []

    class Noting(Listener):
        def __init__(self, name: str) -> None:
            self.name = name

        def row(self, result: RowRecord) -> None:
            events.append((self.name, result.cycle))

    runs = [(config, tmp_path / "shared" / name) for name, config in configs.items()]
    assert run_together(prepared(runs), [Noting(name) for name in configs]) == [None] * 3
    assert [event for event in events if event[0] != "seed"] == [("short", 0), ("short", 1), ("short", 2), *(("long", c) for c in range(3))]
    for name in configs:
        assert contents(tmp_path / "shared" / name) == contents(tmp_path / "alone" / name)


@pytest.mark.usefixtures("on_cpu")
def test_one_that_diverges_leaves_the_others_alone(quick: Make, tmp_path: Path) -> None:
    wild = {"cycle__learning_rate": 1e30, **GRAPHED}
    configs = [quick(seed=0, **GRAPHED), quick(seed=1, **wild), quick(seed=2, **GRAPHED)]
    names = ["first", "wild", "last"]
    said: list[str] = []

    class Listening(Listener):
        def say(self, text: str) -> None:
            said.append(text)

    failures = run_all([(config, tmp_path / name) for config, name in zip(configs, names, strict=True)], Listening())
    assert [type(failure) for failure in failures] == [type(None), Diverged, type(None)]
    failed = [text.split(" at ")[0] for text in said if "learning_rate" not in text]  # Its rate is remarked on, too.
    assert failed == [f"failed: {str(failures[1]).split(' at ')[0]}"]
    for name, config in (("first", configs[0]), ("last", configs[2])):
        list(iterate(config, tmp_path / f"{name}-alone"))
        assert contents(tmp_path / name) == contents(tmp_path / f"{name}-alone")
    assert not read_rows(tmp_path / "wild")


@pytest.mark.usefixtures("on_cpu")
def test_a_run_that_has_ended_is_left_as_it_is(quick: Make, tmp_path: Path) -> None:
    """The first trains what the second begins with, too, and has dropped it and ended when that is needed again; a cache still has it."""
    settings = {"keep": "last", "pruning__rewind": "lr", "engines__graphed__particles": 2, **GRAPHED}
    configs = {
        "first": quick(methods__swamp__particles=1, pruning__cycles=1, **settings),
        "second": quick(methods__swamp__particles={"0": 1, "1": 4}, **settings),
    }
    for name, config in configs.items():
        list(iterate(config, tmp_path / "alone" / name, tmp_path / "cache-alone"))
    runs = [(config, tmp_path / "shared" / name) for name, config in configs.items()]
    assert run_together(prepared(runs, tmp_path / "cache"), [Listener()] * 2) == [None, None]
    for name in configs:
        assert contents(tmp_path / "shared" / name) == contents(tmp_path / "alone" / name)
        assert not (tmp_path / "shared" / name / "work").exists()


@pytest.mark.usefixtures("on_cpu")
def test_an_average_that_does_not_fit_into_memory_waits_for_the_others(
    quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, averaged = [], graphed.Graphed.averaged

    def scarce(self: graphed.Graphed, *given: Any) -> Any:
        if self.busy:
            refused.append(1)
            raise torch.OutOfMemoryError
        return averaged(self, *given)

    monkeypatch.setattr(graphed.Graphed, "averaged", scarce)
    configs = [quick(pruning__cycles=1, **GRAPHED), quick(seed=1, cycle__epochs=6, pruning__cycles=1, **GRAPHED)]
    assert run_all([(config, tmp_path / f"shared-{config.seed}") for config in configs]) == [None, None]
    assert refused
    for config in configs:
        list(iterate(config, tmp_path / f"alone-{config.seed}"))
        assert contents(tmp_path / f"shared-{config.seed}") == contents(tmp_path / f"alone-{config.seed}")


def test_errors_hold_on_to_nothing_that_was_trained() -> None:
    """Else the card's memory would be theirs while the others train alone, and until all have ended."""

    class Tensors: ...

    alive: list[weakref.ref[Tensors]] = []
    left: list[Tensors | None] = []

    class Failing(Engine):
        def train_streaming(self, jobs: Any, report: Any, more: Any) -> None:
            list(self.train(jobs, report))

        def train(self, jobs: Any, report: Any) -> Any:
            left.extend(reference() for reference in alive)
            tensors = Tensors()
            alive.append(weakref.ref(tensors))
            yield from ()
            raise Diverged

    class Waiting:
        jobs, ended = (), False

    members: Any = [Waiting(), Waiting()]
    errors = group._train(Failing(cast(EngineContext, None)), group.SharedSolutionStore(), members, lambda _: None)
    assert list(errors) == members
    assert {type(error) for error in errors.values()} == {Diverged}
    assert left == [None] * 3
    assert [reference() for reference in alive] == [None] * 3


@pytest.mark.usefixtures("on_cpu")
def test_interrupted_they_stop_and_go_on(quick: Make, tmp_path: Path) -> None:
    configs = [quick(seed=seed, checkpoint_seconds=0.0, **GRAPHED) for seed in range(2)]
    runs = [(config, tmp_path / f"shared-{config.seed}") for config in configs]

    class Impatient(Listener):
        def epoch(self, progress: Progress) -> None:
            if progress.label == "cycle 1, particle 0":
                raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run_all(runs, Impatient())
    assert threading.active_count() == before
    assert len(read_rows(runs[0][1])) == 1
    # the locks are free again
    assert run_all(runs) == [None, None]
    for config, directory in runs:
        list(iterate(config, tmp_path / f"alone-{config.seed}"))
        assert contents(directory) == contents(tmp_path / f"alone-{config.seed}")


@pytest.mark.usefixtures("on_cpu")
def test_the_command_does_so_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    run = group.run_together
    monkeypatch.setattr(group, "run_together", lambda runs, *rest: [together.append(len(runs)), run(runs, *rest)][1])
    quick = ["--pruning.cycles=1", "--ticket.epochs=1", "--cycle.epochs=1", "--tasks.image.batch_size=250", "--method=imp"]
    command = ["run", "digits", *quick, "--engine=graphed", "--engines.graphed.compile=false", "--device=cpu", f"--out={tmp_path}"]
    cli.main([*command, "--seeds=0,1"])
    output = capsys.readouterr()
    assert together == [2]
    assert "seed-0: cycle 1: 50.00 % sparse" in output.err
    assert output.out.splitlines()[-1].startswith(f"2 runs; this again: swamp compare {tmp_path}")


@pytest.mark.usefixtures("on_cpu")
def test_what_can_share(quick: Make, tmp_path: Path) -> None:
    def shares(*configs: Config) -> bool:
        return groups_of(runs := prepared([(config, tmp_path / str(index)) for index, config in enumerate(configs)])) == [runs]

    first, second = (quick(seed=seed, **GRAPHED) for seed in range(2))
    assert shares(first, second)
    others: list[dict[str, Any]] = [{"engine": "sequential"}, {"engines__graphed__particles": 3}, {"precision": "bf16"}, {"threads": 2}]
    for other in others:
        assert not shares(first, quick(seed=1, **{**GRAPHED, **other}))
    assert shares(first, quick(seed=1, tasks__image__batch_size=64, **GRAPHED))  # another task


@pytest.mark.usefixtures("on_cpu")
def test_groups_keep_to_what_can_share(quick: Make, tmp_path: Path) -> None:
    kinds: list[dict[str, Any]] = [GRAPHED, {"engine": "sequential", "device": "cpu", "precision": "float32"}]
    configs = [quick(seed=index, **kinds[index % 2]) for index in range(4)]
    runs = prepared([(config, tmp_path / str(index)) for index, config in enumerate(configs)])
    assert groups_of(runs) == [[runs[0], runs[2]], [runs[1]], [runs[3]]]


@pytest.mark.usefixtures("on_cpu")
def test_runs_of_several_tasks_leave_the_bytes_of_runs_alone(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lottery Pools holds examples out, so that its task is another, whose epochs have fewer steps; DST has a rule of its own."""
    settings = {"pruning__cycles": 1, "tasks__image__batch_size": 60, **GRAPHED}
    configs = {method: quick(method=method, **settings) for method in ("imp", "lottery-pools", "dst")}
    for method, config in configs.items():
        list(iterate(config, tmp_path / "alone" / method))
    together = note_busy_particles(monkeypatch)
    runs = prepared([(config, tmp_path / "shared" / method) for method, config in configs.items()])
    assert len({run.task.fingerprint for run in runs}) == 2
    assert groups_of(runs) == [runs]
    assert run_together(runs, [Listener()] * 3) == [None] * 3
    assert any(len({particle.task.steps_per_epoch for particle in busy}) == 2 for busy in together)  # jobs of both tasks side by side
    for method in configs:
        assert contents(tmp_path / "shared" / method) == contents(tmp_path / "alone" / method)


def test_a_member_works_only_while_it_is_waited_for() -> None:
    trace: list[str] = []

    def work(member: MemberEngine) -> None:
        trace.append("works")
        member._pause()
        trace.append("works again")

    member = MemberEngine(work, sequential.build(cast(EngineContext, None), sequential.Config()), cast(SolutionStore, None))
    assert not trace
    member.resume()
    assert (trace, member.ended) == (["works"], False)
    member.resume()
    assert (trace, member.ended, member.error) == (["works", "works again"], True, None)
    member.stop()
