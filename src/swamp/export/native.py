"""Compile `kernel.cpp` with this machine's C++ compiler, once, and keep the library in the user's cache.

The source is the package's own and networks are only data for it, so the file of a network cannot bring code. The library's name is a hash
of source, compiler and processor. It is written under a temporary name first, in a directory that no other user can write to.
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


class KernelUnavailable(RuntimeError):
    """The kernel cannot be compiled or loaded on this machine; the message says why."""


def library() -> ctypes.CDLL:
    """Load the kernel, compiling it first if it was never compiled on this machine."""
    path = _built(compiler(), cache_directory())
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelUnavailable(f"the sparse path's kernel cannot be loaded: {error}") from None


def compiler() -> str:
    """Return the compiler that CXX names, or the first of the usual ones that exists."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    found = next((path for path in map(shutil.which, names) if path), None)
    if not found:
        raise KernelUnavailable(f"the sparse path needs a C++ compiler, and there is no {' or '.join(names)}; set CXX to one")
    return found


def cache_directory() -> Path:
    """Return the directory of compiled kernels in XDG_CACHE_HOME or ~/.cache. Code is loaded from it, so only the user may write to it."""
    try:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swamp"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = path.lstat()
    except (OSError, RuntimeError) as error:
        raise KernelUnavailable(f"the sparse path's kernel cannot be kept in the user's cache: {error}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise KernelUnavailable(f"{path} is not this user's alone, so no code is loaded from it; chmod 700 it or set XDG_CACHE_HOME")
    return path


@cache
def _built(compiler: str, directory: Path) -> Path:
    # The compiler's predefined macros name its version and the processor's instruction sets.
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
        raise KernelUnavailable(f"{command[0]} could not compile the sparse path: {said[0] if said else error}") from None
