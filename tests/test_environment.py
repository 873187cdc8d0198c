"""Real processes in surroundings that something is wrong with: what they compute is right, and their status is true."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import FLAGS
from tests.support.runs import contents

SWAMP = [sys.executable, "-m", "swamp"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(
    *arguments: object, prepare: Callable[[], None] | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process that calls `prepare` before it becomes swamp."""
    line = [*SWAMP, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, preexec_fn=prepare, env={**os.environ, **(environment or {})}, timeout=120)


def closing(*descriptors: int) -> Callable[[], None]:
    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return close


def heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("closed", [1, 2])
def test_closed_streams_do_not_change_the_status(closed: int) -> None:
    good, bad = run("--help", prepare=closing(closed)), run("recipes", "--nothing", prepare=closing(closed))
    assert (good.returncode, bad.returncode) == (0, 2)
    assert (b"swamp" in good.stdout) == (closed != 1)
    assert (b"swamp: " in bad.stderr) == (closed != 2)
    assert b"Traceback" not in good.stderr + bad.stderr


@pytest.mark.slow
def test_a_run_without_streams_in_an_ascii_locale_is_the_same(tmp_path: Path, swamp_run: Path) -> None:
    """Files would take the numbers of closed streams; workers inherit what stands in their place."""
    settings = [*FLAGS, "--engine=processes", "--engines.processes.workers=1", "--out", tmp_path / "run"]
    assert run("run", *settings, prepare=closing(0, 1, 2), environment=ASCII).returncode == 0
    assert contents(tmp_path / "run") == contents(swamp_run)


@pytest.mark.parametrize(
    "environment", [ASCII, pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.slow)], ids=["locale", "PYTHONIOENCODING"]
)
def test_what_ascii_lacks_is_written_out(environment: dict[str, str]) -> None:
    done = run("methods", "imp-sam", environment=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u03c1" in done.stdout  # ρ


def test_too_little_memory_and_too_few_files_are_a_sentence_each(tmp_path: Path) -> None:
    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (300_000_000, 300_000_000))

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))

    done = run("methods", prepare=little_memory)
    assert done.returncode == 1
    assert done.stderr.startswith(b"swamp: there is not enough memory (")
    settings = [*FLAGS, "--engine=processes", "--engines.processes.workers=4", "--methods.swamp.particles=4", "--out", tmp_path / "run"]
    done = run("run", *settings, prepare=few_files)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(b"swamp: too many files are open")


def test_ctrl_c_ends_a_command_in_silence_from_the_beginning() -> None:
    """The signal comes when a module is about to be imported."""
    for module in ("cyclopts", "torch.nn"):
        hook = (
            "import os, signal, sys\n"
            "class Finder:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            f"        if name == {module!r}: sys.meta_path.remove(self); os.kill(os.getpid(), signal.SIGINT)\n"
            "from swamp.cli import main\n"
            "sys.meta_path.insert(0, Finder()); sys.argv = ['swamp', 'methods']\n"
            "main()"
        )
        done = subprocess.run([sys.executable, "-c", hook], capture_output=True, preexec_fn=heed_interrupts, timeout=60)
        assert (done.returncode, done.stderr) == (130, b""), module


@pytest.mark.slow
def test_an_interrupt_that_the_parent_ignores_stays_ignored(tmp_path: Path, swamp_run: Path) -> None:
    process = subprocess.Popen([*SWAMP, "run", *FLAGS, "--out", str(tmp_path / "run")], preexec_fn=ignore_interrupts)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert process.returncode == 0
    assert contents(tmp_path / "run") == contents(swamp_run)
