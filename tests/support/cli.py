"""Commands, in a process of their own and in this one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from swamp.cli import main
from tests.support.runs import QUICK

FLAGS = [f"--{name}={value}" for name, value in QUICK.items()]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "swamp", *map(str, arguments)], capture_output=True, text=True)


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """A command in this process: its status, standard output and standard error."""
    status = status_of(*arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def status_of(*arguments: object) -> int:
    """The status of a command in this process; what it prints is left to the caller."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0
