"""Processes that tests start, look at and kill."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid` (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def heed_interrupts() -> None:
    """Under nohup, or in the background of a shell, SIGINT is ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(line: list[str]) -> subprocess.Popen[str]:
    """Start a process in a session of its own, which Ctrl-C can end."""
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heed_interrupts
    )


def newest(directory: Path) -> int:
    """When anything was last written there, in nanoseconds; kept up to date by checkpoints at every epoch."""
    times = [0]
    for folder in (directory / "work", directory / "objects"):
        for path in folder.glob("*"):
            try:
                times.append(path.stat().st_mtime_ns)
            except OSError:
                continue  # it was a temporary
    return max(times)
