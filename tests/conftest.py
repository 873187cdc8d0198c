"""Fixtures of all tests: one thread, small configurations, and finished runs that are made once per process."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from swamp_runtime import library

from swamp.cli import main
from swamp.runs.config import Config, build_config
from tests.support.cli import FLAGS
from tests.support.runs import QUICK

# The network `small-digits` and the data set `few-digits` are registered for this process and for all that it starts.
PLUGIN = str(Path(__file__).parent / "support" / "plugin")
sys.path.append(PLUGIN)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), PLUGIN]))

# How long an example takes depends on the machine, and says nothing about the code.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

# What is imported and collected stays, so that looking for garbage among it finds none, also at the end of the process.
gc.disable()
atexit.register(gc.freeze)

# With `--dist loadfile` a worker takes file after file: those that take longest come first, lest one worker works alone at the end.
LONGEST_FIRST = (
    "tests/runtime/test_networks.py",  # the first that needs the runtime compiles it, on both cores
    "tests/contract/test_own_models.py",
    "tests/test_cli.py",
    "tests/engines/test_ray.py",
    "tests/report/page/test_browser.py",
    "tests/runs/test_group.py",
    "tests/contract/test_methods.py",
    "tests/test_kill.py",
    "tests/engines/test_distributed.py",
    "tests/tasks/test_streaming.py",
    "tests/engines/test_processes.py",
    "tests/test_environment.py",
    "tests/commands/test_grids.py",
    "tests/export/test_narrow.py",
    "tests/export/test_program.py",
    "tests/test_loop_resuming.py",
    "tests/training/test_data_parallel.py",
    "tests/commands/test_analyse.py",
    "tests/contract/test_engines.py",
    "tests/engines/launch/test_outsiders.py",
    "tests/contract/test_analyses.py",
    "tests/export/test_compiled.py",
    "tests/analyses/test_shown.py",
    "tests/export/test_onnx.py",
    "tests/engines/test_graphed.py",
    "tests/test_cli_text.py",
    "tests/commands/test_bench_inference.py",
    "tests/runs/test_runner.py",
    "tests/engines/captured/test_particle_pool.py",
    "tests/store/test_strange_files.py",
    "tests/analyses/test_analyses.py",
    "tests/contract/test_damaged_directories.py",
    "tests/test_current_directory.py",
    "tests/runs/test_crash.py",
    "tests/test_docs.py",
)
LAST = "tests/commands/test_reading.py"  # it slows down what comes after it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: index for index, name in enumerate(LONGEST_FIRST)} | {LAST: sys.maxsize}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of all later garbage collections, which are then quick, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session", autouse=True)
def unsynchronised_files() -> Iterator[None]:
    """Files of this process need not reach the disk: nobody cuts its power. A run of QUICK would wait for it a hundred times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # a descriptor that is not open is an error still
        yield


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def quick() -> Callable[..., Config]:
    """A small configuration; settings by keyword, dots as double underscores."""

    def make(**changes: Any) -> Config:
        given = {name.replace("__", "."): value for name, value in changes.items()}
        settings = {**QUICK, **given}
        if given.get("method", "swamp") != "swamp":
            settings.pop("methods.swamp.particles")
        return build_config("digits", settings)

    return make


@pytest.fixture(scope="session")
def swamp_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of SWAMP with the settings of QUICK. Tests read it; one that changes it copies it first."""
    directory = tmp_path_factory.mktemp("finished") / "swamp"
    main(["run", *FLAGS, "--out", str(directory)])
    return directory


@pytest.fixture(scope="session")
def compiled_runtime(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The runtime's library, which is compiled once for all processes of the tests and kept until its source changes."""
    known = getattr(pytestconfig, "cache", None)
    directory = Path(known.mkdir("runtime")) if known else tmp_path_factory.mktemp("runtime")
    with pytest.MonkeyPatch.context() as patch, open(directory / "lock", "w") as lock:
        patch.setenv("XDG_CACHE_HOME", str(directory))
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = library._built(library.compiler(), library.cache_directory())
        fcntl.flock(lock, fcntl.LOCK_UN)
        patch.undo()
        patch.setattr(library, "PREBUILT", path)
        yield path


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is left in the user's cache, and nothing is found there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
