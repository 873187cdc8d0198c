"""Commands, in a process of their own and in this one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from swamp.cli import main
from tests.support.runs import QUICK

FLAGS = [f"--{name}={value}" for name, value in QUICK.items()]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "swamp", *map(str, arguments)], capture_output=True, text=True)


def run_all(lines: list[list[str]], environment: dict[str, str]) -> list[tuple[int, str, str]]:
    """Commands one after the other in one process with this environment: the status, standard output and standard error of each."""
    code = (
        "import contextlib, io, json, sys\n"
        "from swamp.cli import main\n"
        "ends = []\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    out, errors, status = io.StringIO(), io.StringIO(), 0\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):\n"
        "        try: main(line)\n"
        "        except SystemExit as stop: status = int(stop.code or 0)\n"
        "    ends.append([status, out.getvalue(), errors.getvalue()])\n"
        "print(json.dumps(ends))"
    )
    command = [sys.executable, "-c", code, json.dumps(lines)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [(status, out, errors) for status, out, errors in json.loads(done.stdout)]


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
