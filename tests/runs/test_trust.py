"""Code that a run directory names is run only if the user names it too, or trusts the directory."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import swamp
from swamp.core.state import State
from swamp.export.formats.sparse import encode, read_sparse
from swamp.runs.config import Config, build_config
from swamp.runs.opening import RunRequest, prepare
from swamp.runs.stored import read_config, resume_command
from swamp.store.directory import Store
from tests.support.cli import call

TASK = """
import pathlib, torch, swamp
pathlib.Path("called").touch()
def make():
    x = torch.linspace(-1, 1, 40).repeat(4, 1).T.contiguous()
    data = x, (x[:, 0] > 0).long()
    model = torch.nn.Linear(4, 2)
    with torch.no_grad(): model.weight.fill_(0.1); model.bias.zero_()
    return swamp.CustomTask(model, data, data, batch_size=10)
"""
SHORT: dict[str, Any] = {
    "method": "imp",
    "cycle.epochs": 1,
    "ticket.epochs": 1,
    "pruning.cycles": 1,
    "engine": "sequential",
    "device": "cpu",
}
REFUSED = (
    "names code that would be run here: tasks.custom.factory = 'RUN.evil:make'; if you want that, name it yourself (--task RUN.evil:make"
)


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with two runs that name a module which came with them. Their names are RUN and RUN2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").mkdir()
    (tmp_path / "RUN" / "evil.py").write_text(TASK)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, seed in (("made", 0), ("RUN2", 1)):
        swamp.run("custom", out=name, task="RUN.evil:make", seed=seed, **SHORT)
    shutil.copytree("made", "RUN", dirs_exist_ok=True)
    forget(tmp_path)
    yield tmp_path
    forget(tmp_path)


def forget(folder: Path) -> None:
    (folder / "called").unlink(missing_ok=True)
    for name in ("RUN", "RUN.evil"):
        sys.modules.pop(name, None)


COMMANDS = [
    "resume RUN",
    "export RUN --format sparse --out x.swamp",
    "analyse RUN --masks",
    "analyse RUN --calibration",
    "ensemble RUN RUN2",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_the_code_only_if_it_is_named_or_trusted(command: str, received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in received.rglob("*") if path.is_file() and path.suffix != ".pyc" and path.name != ".lock"}
    status, out, err = call(capsys, *command.split())
    assert (status, out) == (2, "")
    assert REFUSED in err
    assert "or trust the directory (--trust" in err
    assert len(err.splitlines()) == 1
    assert not (received / "called").exists()
    after = {path: path.read_bytes() for path in received.rglob("*") if path.is_file() and path.suffix != ".pyc" and path.name != ".lock"}
    assert after == before
    for way in (["--trust"], ["--task", "RUN.evil:make"]):
        forget(received)
        (received / "x.swamp").unlink(missing_ok=True)
        (received / "x.swamp.md").unlink(missing_ok=True)
        status, _, err = call(capsys, *command.split(), *way)
        assert status == 0, err
        assert (received / "called").exists()


@pytest.mark.parametrize("load", [lambda **how: swamp.load("RUN", **how), lambda **how: swamp.Run("RUN").load(**how)])
def test_loading_calls_the_function_only_with_trust(load: Callable[..., Any], received: Path) -> None:
    with pytest.raises(ValueError, match=r"RUN names code that would be run here.*in Python task=….*trust=True"):
        load()
    assert not (received / "called").exists()
    loaded = load(trust=True)
    assert (received / "called").exists()
    from RUN import evil  # type: ignore[import-not-found]

    assert load(task=evil.make()).mask.digest == loaded.mask.digest


def test_what_only_shows_needs_no_trust(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show RUN", "compare RUN RUN2", "report RUN RUN2 --out page.html", "figure error RUN --out e.svg", "watch RUN"):
        status, _, err = call(capsys, *command.split())
        assert status == 0, err
    assert not (received / "called").exists()


def test_the_advice_to_resume_is_a_command_that_works(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice = resume_command(read_config(Path("RUN")), Path("RUN"))
    assert advice == "swamp resume RUN --task RUN.evil:make"
    assert call(capsys, *shlex.split(advice)[1:])[0] == 0


def test_the_command_that_began_a_run_continues_it(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [f"--{name}={value}" for name, value in SHORT.items()]
    assert call(capsys, "run", "custom", "--task", "RUN.evil:make", *flags, "--out", "RUN")[0] == 0


def test_a_configuration_of_a_run_directory_is_no_recipe_that_is_believed(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call(capsys, "run", "RUN/config.toml", "--out", "again")
    assert status == 2
    assert "RUN/config.toml names code that would be run here" in err
    assert not (received / "called").exists()
    assert call(capsys, "run", "RUN/config.toml", "--task", "RUN.evil:make", "--out", "again")[0] == 0
    shutil.copytree("RUN", "lost")
    (received / "lost" / "run.json").unlink()
    (received / "deep/RUN/sub").mkdir(parents=True)
    (received / "deep/RUN/.run.json").symlink_to("nowhere")
    shutil.copy("RUN/config.toml", "deep/RUN/sub/recipe.toml")
    (received / "based.toml").write_text('base = "RUN/config.toml"')
    for recipe in ("lost/config.toml", "deep/RUN/sub/recipe.toml", "based.toml"):
        with pytest.raises(ValueError, match=r"names code that would be run here: tasks.custom.factory = 'RUN.evil:make'; .*task=…\)$"):
            build_config(recipe)
    (received / "lost" / ".run.json").unlink()  # Objects beside a configuration are a run, too.
    with pytest.raises(ValueError, match="names code"):
        build_config("lost/config.toml")
    assert "RUN.evil:make" in call(capsys, "recipes", "lost/config.toml")[1]  # Looking at it runs nothing.
    (received / "mine.toml").write_text(Path("RUN/config.toml").read_text())  # A recipe of the user's own is.
    assert build_config("mine.toml").tasks["custom"]["factory"] == "RUN.evil:make"


def test_a_file_does_not_choose_the_code_of_its_task(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "export", "RUN", "--trust", "--format", "sparse", "--out", "x.swamp")[0] == 0
    forget(received)
    state, mask, about = read_sparse("x.swamp", State.of(torch.nn.Linear(4, 2)))
    assert "factory" not in about["settings"]  # `export` keeps it to itself
    Path("x.swamp").write_bytes(encode(state, mask, about={**about, "settings": {"factory": "RUN.evil:make"}}))
    status, _, err = call(capsys, "bench-inference", "x.swamp", "--rounds", "1")
    assert status == 2
    assert "name the function that makes it: --task module:function" in err
    assert not (received / "called").exists()


def rewrite(run: Path, **changes: Any) -> None:
    """Change the configuration in a run.json, as whoever sends a run directory can."""
    header = Store(run).header()
    assert header is not None
    Store(run).write_header({**header, "config": {**header["config"], **changes}})


def test_a_received_grid_does_not_choose_the_code_of_its_analyses(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tasks of grids are those that the user's grid names, whatever the directories say."""
    (received / "own_task.py").write_text(TASK.replace("called", "called-own"))
    settings = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in {**SHORT, "task": "own_task:make"}.items())
    shown = 'seeds = [0, 1]\nat = "all"\nanalysis = "calibration"\nensembles = { method = "IMP" }\n'
    grid = f'recipe = "custom"\n{shown}[settings]\n{settings}\n'
    (received / "grid.toml").write_text(grid.replace('"method" = "imp"\n', "") + '[axes.method]\nIMP = { method = "imp" }\n')
    sweep = ["sweep", "grid.toml", "--out", "grid", "--quiet"]
    status, _, err = call(capsys, *sweep)
    assert status == 0, err
    runs = [path.parent for path in received.glob("grid/**/run.json")]
    assert len(runs) == 2
    assert all((run / "analysis").is_dir() for run in runs)
    for run in runs:
        rewrite(run, tasks={"custom": {"factory": "RUN.evil:make"}})
        shutil.rmtree(run / "analysis")
    status, _, err = call(capsys, *sweep)
    assert status == 0, err
    assert all((run / "analysis" / "calibration.json").is_file() for run in runs)
    assert any((run / "analysis" / "ensemble-2.json").is_file() for run in runs)
    assert not (received / "called").exists()


def test_a_received_run_does_not_choose_a_cluster(quick: Callable[..., Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever runs the cluster that trains can run code in this process."""
    run = tmp_path / "run"
    with prepare([RunRequest(quick(engine="sequential", device="cpu"), run)])[0].begin():
        pass
    rewrite(run, engine="ray", engines={"ray": {"address": "ray://stranger:10001"}})
    status, _, err = call(capsys, "resume", run)
    assert status == 2
    assert "names code that would be run here: engines.ray.address = 'ray://stranger:10001'" in err
    assert "(--ray-address ray://stranger:10001" in err
    assert resume_command(read_config(run), run) == f"swamp resume {run} --ray-address ray://stranger:10001"
    status, _, err = call(capsys, "resume", run, "--engine", "sequential")
    assert status == 0, err


def test_nothing_is_written_through_a_link_in_a_group(swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(swamp_run, tmp_path / "outside", symlinks=True)
    (tmp_path / "outside" / "manifest.json").unlink()
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "seed-0").symlink_to(tmp_path / "outside")
    status, _, err = call(capsys, "resume", tmp_path / "group")
    assert status == 2
    assert "seed-0 is a link, through which nothing is written" in err
    assert not (tmp_path / "outside" / "manifest.json").exists()
