"""`kernel.cpp` as a library of this machine: compiled by its C++ compiler, once, and kept in the user's cache.

The source is the package's own and a network only numbers in it, so no file of a network can bring code. The library's name is a hash of
source, compiler and processor; it is written under another name first, in a directory that nobody else can write to.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("kernel.cpp")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")
TIMEOUT = 300  # seconds


class Missing(RuntimeError):
    """No kernel on this machine; the message says why."""


def library() -> ctypes.CDLL:
    """The kernel of this machine, compiled now if it never was."""
    path = _built(compiler(), cache_directory())
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Missing(f"the sparse path's kernel cannot be loaded: {error}") from None


def compiler() -> str:
    """What CXX names, or the first C++ compiler there is."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    found = next((path for path in map(shutil.which, names) if path), None)
    if not found:
        raise Missing(f"the sparse path needs a C++ compiler, and there is no {' or '.join(names)}; set CXX to one")
    return found


def cache_directory() -> Path:
    """Where compiled kernels are kept: in XDG_CACHE_HOME, or ~/.cache. Code is loaded from it, so it must be the user's alone."""
    try:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swamp"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = path.lstat()
    except (OSError, RuntimeError) as error:
        raise Missing(f"the sparse path's kernel cannot be kept in the user's cache: {error}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Missing(f"{path} is not this user's alone, so no code is loaded from it; chmod 700 it or set XDG_CACHE_HOME")
    return path


@cache
def _built(compiler: str, directory: Path) -> Path:
    # what the compiler predefines tells its version and all that this processor can do
    predefined = _output([compiler, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull])
    key = hashlib.sha256(b"\0".join([SOURCE.read_bytes(), " ".join(FLAGS).encode(), predefined])).hexdigest()
    path = directory / f"kernel-{key[:32]}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            made = Path(folder) / "kernel.so"
            _output([compiler, *FLAGS, str(SOURCE), "-o", str(made)])
            os.replace(made, path)
    return path


def _output(command: list[str]) -> bytes:
    try:
        return subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        raise Missing(f"{command[0]} could not compile the sparse path: {said[0] if said else error}") from None
