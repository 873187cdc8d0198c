"""Commands run no code because of the directory that they are called in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from swamp.engines.workers import search_path, startup_search_path
from swamp.tasks.own.task_function import command_imports, find_task_function
from tests.support.cli import FLAGS

# Modules that swamp imports, of other packages and of the standard library. Python itself imports some of the latter for `python -m`
# before any code of swamp runs (warnings, collections, functools, …), and these are not among them.
PLANTED = (
    *("torch", "msgspec", "rich", "cyclopts", "numpy", "scipy", "sklearn", "safetensors", "PIL", "matplotlib", "ray", "swamp_plugin"),
    *("json", "typing", "__future__", "dis", "inspect", "select", "socket", "queue", "pickle", "hashlib", "subprocess", "multiprocessing"),
    *("tempfile", "tomllib", "shlex", "dataclasses", "pathlib", "sitecustomize", "usercustomize"),
)
SCRIPT = [str(Path(sys.executable).with_name("swamp"))]
MODULE = [sys.executable, "-m", "swamp"]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory with modules in it that leave a trace and fail."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'a').write({name!r} + ' ')\nraise SystemExit(77)\n")
    return folder


def called(command: list[str], hostile: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in the hostile directory, which must not have run anything of it."""
    # Coverage of processes is measured by modules that are imported when Python starts.
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("COV")}, **environment}
    done = subprocess.run([*command, *map(str, arguments)], cwd=hostile, env=env, capture_output=True, text=True, timeout=120)
    trace = hostile.parent / "trace"
    assert not trace.exists(), f"{trace.read_text()} were imported: {done.stderr[-500:]}"
    return done


needs_script = pytest.mark.skipif(not os.path.exists(SCRIPT[0]), reason="swamp is not installed as a script")
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        pytest.param(SCRIPT, "--version", marks=needs_script),
        pytest.param(SCRIPT, "report RUN --out page.html", marks=needs_script),
        pytest.param(SCRIPT, "show RUN", marks=[needs_script, slow]),
        pytest.param(SCRIPT, "compare RUN RUN", marks=[needs_script, slow]),
        (MODULE, "--version"),
        pytest.param(MODULE, "show RUN", marks=slow),
        pytest.param(MODULE, "report RUN --out page.html", marks=slow),
        pytest.param(MODULE, "figure error RUN --out e.svg", marks=slow),
        pytest.param(MODULE, "methods", marks=slow),
    ],
)
def test_commands_that_show_import_nothing_from_here(command: list[str], arguments: str, hostile: Path, swamp_run: Path) -> None:
    done = called(command, hostile, *(str(swamp_run) if word == "RUN" else word for word in arguments.split()))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [pytest.param(SCRIPT, marks=[needs_script, slow]), pytest.param(MODULE, marks=slow)])
def test_a_run_and_its_workers_import_nothing_from_here(command: list[str], hostile: Path, tmp_path: Path) -> None:
    done = called(
        command, hostile, "run", "digits", *FLAGS, "--out", tmp_path / "run", "--engine=processes", "--pruning.cycles=0", "--cycle.epochs=1"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "manifest.json").exists()


TASK = """
import helper_of_mine, torch, swamp
def make():
    x = torch.linspace(-1, 1, 40).repeat(4, 1).T.contiguous()
    data = x, (x[:, 0] > 0).long()
    model = torch.nn.Linear(4, 2)
    with torch.no_grad(): model.weight.fill_(0.1); model.bias.zero_()
    return swamp.CustomTask(model, data, data, batch_size=10, loss=helper_of_mine.loss)
"""
HELPER = "from torch.nn.functional import cross_entropy\ndef loss(outputs, targets): return cross_entropy(outputs, targets)\n"


@pytest.fixture
def with_task(hostile: Path) -> Path:
    (hostile / "mine_of_here.py").write_text(TASK)
    (hostile / "helper_of_mine.py").write_text(HELPER)
    return hostile


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        pytest.param(SCRIPT, "processes", marks=needs_script),
        pytest.param(MODULE, "processes", marks=slow),
        pytest.param(SCRIPT, "ray", marks=[needs_script, slow]),
    ],
)
def test_a_task_of_this_directory_is_found_after_everything_else(command: list[str], engine: str, with_task: Path, tmp_path: Path) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
        (with_task / "ray.py").unlink(missing_ok=True)
    short = ["--cycle.epochs=1", "--ticket.epochs=1", "--pruning.cycles=1", "--method=imp", "--device=cpu", f"--engine={engine}"]
    done = called(command, with_task, "run", "custom", "--task", "mine_of_here:make", *short, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "manifest.json").exists()


@pytest.mark.parametrize("safe", [pytest.param(["-I"], marks=slow), pytest.param(["-P"], marks=slow), []])
def test_a_safe_python_does_not_look_here_at_all(safe: list[str], with_task: Path, tmp_path: Path) -> None:
    command, environment = ([sys.executable, *safe, "-m", "swamp"], {}) if safe else (MODULE, {"PYTHONSAFEPATH": "1"})
    done = called(command, with_task, "run", "custom", "--task", "mine_of_here:make", "--out", tmp_path / "run", **environment)
    assert done.returncode == 2
    assert (
        "No module named 'mine_of_here' (Python was told by -I, -P or PYTHONSAFEPATH not to look in the current directory)" in done.stderr
    )
    assert not (tmp_path / "run").exists()


def test_no_process_that_a_command_starts_looks_here_first(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of `multiprocessing`, which decode images, are started like this."""
    monkeypatch.chdir(hostile)
    with command_imports():
        called([sys.executable, "-c", "from multiprocessing.forkserver import main"], hostile)
    assert startup_search_path() == os.pathsep.join(filter(None, sys.path))  # pytest may have put "" there
    monkeypatch.setattr(sys, "path", ["", *sys.path, str(hostile)])
    assert str(hostile) not in startup_search_path().split(os.pathsep)
    assert search_path()[0] == search_path()[-1] == str(hostile)


def test_the_current_directory_comes_last_and_only_where_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def make(): return 1\n")
    (tmp_path / "tomllib.py").write_text("def loads(): raise AssertionError\n")
    (tmp_path / "json.py").write_text("def loads(): raise AssertionError\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    with pytest.raises(ValueError, match="No module named 'only_here'"):  # The search path of a script or notebook is its own.
        find_task_function("only_here:make")
    with command_imports():
        assert sys.path == before
        assert os.environ["PYTHONSAFEPATH"] == "1"
        for installed in ("tomllib:loads", "json:loads", "sys:path"):
            find_task_function(installed)
            assert sys.path == before
        assert find_task_function("only_here:make")() == 1
        assert sys.path == [*before, str(tmp_path)]
    assert sys.path == before
    assert "PYTHONSAFEPATH" not in os.environ
    monkeypatch.delitem(sys.modules, "only_here")


def test_a_package_here_takes_precedence_over_a_folder_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site" / "package_of_mine" / "data").mkdir(parents=True)  # Python takes any folder for a package, if there is no other.
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "package_of_mine.py").write_text("def make(): return 1\n")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with command_imports():
        assert find_task_function("package_of_mine:make")() == 1
    monkeypatch.delitem(sys.modules, "package_of_mine")


def test_a_directory_that_is_gone_is_no_place_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    shutil.rmtree(gone)
    with command_imports(), pytest.raises(ValueError, match="No module named 'nothing_at_all'"):
        find_task_function("nothing_at_all:make")
    done = subprocess.run([*MODULE, "--version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
