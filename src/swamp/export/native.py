"""Compile `kernel.cpp` with this machine's C++ compiler, once, and keep the library in the user's cache.

The source is the package's own and networks are only data for it, so the file of a network cannot bring code. The library's name is a hash
of source, compiler and processor. It is written under a temporary name first, in a directory that no other user can write to. Beside it
lies a record of its bytes. A library that is not as it was recorded, or that another user could have put there, is compiled again.
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
        raise KernelUnavailable(
            f"{path} is not this user's alone, so no code is loaded from it; remove it or set XDG_CACHE_HOME to another directory"
        )
    return path


@cache
def _built(compiler: str, directory: Path) -> Path:
    # The compiler's predefined macros name its version and the processor's instruction sets.
    predefined = _output([compiler, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull])
    key = hashlib.sha256(b"\0".join([SOURCE.read_bytes(), " ".join(FLAGS).encode(), predefined])).hexdigest()
    path = directory / f"kernel-{key[:32]}.so"
    record = path.with_suffix(".sha256")
    found = _own_content(path)
    if found is None or _own_content(record) != _record_of(path, found):
        try:
            with tempfile.TemporaryDirectory(dir=directory) as folder:
                made, recorded = Path(folder) / "kernel.so", Path(folder) / "kernel.sha256"
                _output([compiler, *FLAGS, str(SOURCE), "-o", str(made)])
                recorded.write_bytes(_record_of(path, made.read_bytes()))
                for new, place in ((made, path), (recorded, record)):
                    new.chmod(0o600)  # whatever the umask
                    os.replace(new, place)
        except OSError as error:
            raise KernelUnavailable(f"the sparse path's kernel cannot be kept in the user's cache: {error}") from None
    return path


def _record_of(path: Path, content: bytes) -> bytes:
    """Return the record of a library with this content. It holds for this name alone."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).hexdigest().encode()


def _own_content(path: Path) -> bytes | None:
    """Return the content of a file that nobody but this user can have written: a regular file of this user with one name, which others
    cannot write. Return None for anything else, and where nothing is there."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            regular, own, one_name = stat.S_ISREG(status.st_mode), status.st_uid == os.getuid(), status.st_nlink == 1
            others_can_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            return file.read() if regular and own and one_name and not others_can_write else None
    except OSError:
        return None


def _output(command: list[str]) -> bytes:
    try:
        return subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        raise KernelUnavailable(f"{command[0]} could not compile the sparse path: {said[0] if said else error}") from None
