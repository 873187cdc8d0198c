"""Find or compile the native library.

A wheel for one kind of machine brings the library along. Elsewhere the machine's C++ compiler makes it from the package's own source, once,
and it is kept in the user's cache. Networks are only data for it, so the file of a network cannot bring code. The name of a compiled
library is a hash of source, options and compiler. It is written under a temporary name first, in a directory that no other user can write
to, and beside it lies a record of its bytes. A library that is not as it was recorded, or that another user could have put there, is
compiled again.

The build of a wheel loads this file by itself, without numpy.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).with_name("native")
PREBUILT = Path(__file__).with_name("libswamp_runtime.so")
UNITS = ("operations", "builder", "sums", "layers", "file", "api", "layout", "plan")  # what takes long to compile comes first
OPTIONS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread")
VARIANTS = {  # of the inner loops, by instruction set; the library takes the best that the processor has
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mavx2", "-mfma"),
    "avx2": ("-mavx2", "-mfma"),
    "generic": (),
}
TIMEOUT = 300  # seconds


class LibraryUnavailable(RuntimeError):
    """The library cannot be compiled or loaded on this machine; the message says why."""


class Sizes(ctypes.Structure):
    """The struct `swamp_sizes` of swamp_runtime.h."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("height", "width", "length"))


class PortStruct(ctypes.Structure):
    """The struct `swamp_port` of swamp_runtime.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("channels", "height", "width")),
    )


@cache
def library() -> ctypes.CDLL:
    """Load the library, compiling it first if it is not there yet."""
    from swamp_runtime import blas

    path = PREBUILT if PREBUILT.exists() else _built(compiler(), cache_directory())
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryUnavailable(f"the sparse runtime's library cannot be loaded: {error}") from None
    pointer, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    sizes = ctypes.POINTER(Sizes)
    for name, result, arguments in (
        ("swamp_load_bytes", pointer, [text, ctypes.c_size_t, integer]),
        ("swamp_free", None, [pointer]),
        ("swamp_num_inputs", integer, [pointer]),
        ("swamp_num_outputs", integer, [pointer]),
        ("swamp_input", PortStruct, [pointer, integer]),
        ("swamp_output", PortStruct, [pointer, integer]),
        ("swamp_output_sizes", integer, [pointer, sizes, pointer]),
        ("swamp_run", integer, [pointer, ctypes.c_int64, sizes, pointer, pointer]),
        ("swamp_about", text, [pointer]),
        ("swamp_layers", text, [pointer, sizes]),
        ("swamp_use_gemm", None, [pointer]),
        ("swamp_instructions", text, []),
        ("swamp_error", text, []),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    found.swamp_use_gemm(ctypes.cast(blas.gemm, pointer))
    return found


def instructions() -> str:
    """Return the instruction set in use: avx512, avx2 or generic."""
    return str(library().swamp_instructions().decode())


def compiler() -> str:
    """Return the compiler that CXX names, or the first of the usual ones that exists."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    found = next((path for path in map(shutil.which, names) if path), None)
    if not found:
        raise LibraryUnavailable(f"the sparse runtime needs a C++ compiler, and there is no {' or '.join(names)}; set CXX to one")
    return found


def cache_directory() -> Path:
    """Return the directory of compiled libraries in XDG_CACHE_HOME or ~/.cache. Code is loaded from it: only the user may write to it."""
    try:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swamp"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = path.lstat()
    except (OSError, RuntimeError) as error:
        raise LibraryUnavailable(f"the sparse runtime's library cannot be kept in the user's cache: {error}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LibraryUnavailable(
            f"{path} is not this user's alone, so no code is loaded from it; remove it or set XDG_CACHE_HOME to another directory"
        )
    return path


def build(compiler: str, target: Path, extra: tuple[str, ...] = ()) -> None:
    """Compile the library into a file."""
    sources = [(SOURCES / f"{unit}.cpp", ()) for unit in UNITS]
    link(compiler, [*sources, *kernels()], target, ("-shared", *extra))


def kernels() -> list[tuple[Path, tuple[str, ...]]]:
    """Return the source of the inner loops, with the options for each instruction set."""
    return [(SOURCES / "kernels.cpp", VARIANTS[name]) for name in variants()]


def link(compiler: str, sources: Sequence[tuple[Path, tuple[str, ...]]], target: Path, extra: tuple[str, ...]) -> None:
    """Compile sources, each with its own options, one on each core, and link them."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [f"{folder}/{number}.o" for number in range(len(sources))]
        commands = [
            [compiler, *OPTIONS, *options, *extra, "-c", str(source), "-o", made]
            for (source, options), made in zip(sources, objects, strict=True)
        ]
        list(pool.map(_output, commands))
        _output([compiler, *OPTIONS, *extra, *objects, "-o", str(target)])


def variants() -> list[str]:
    """Return the instruction sets that the library is compiled for on this kind of machine."""
    return list(VARIANTS) if platform.machine().lower() in ("x86_64", "amd64") else ["generic"]


@cache
def _built(compiler: str, directory: Path) -> Path:
    version = _output([compiler, "-dM", "-E", "-x", "c++", os.devnull])  # the compiler's macros name its version and the kind of machine
    sources = [path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.suffix in (".cpp", ".hpp", ".h")]
    options = repr((OPTIONS, VARIANTS)).encode()
    key = hashlib.sha256(b"\0".join([*sources, options, version])).hexdigest()
    path = directory / f"runtime-{key[:32]}.so"
    record = path.with_suffix(".sha256")
    found = _own_content(path)
    if found is None or _own_content(record) != _record_of(path, found):
        try:
            with tempfile.TemporaryDirectory(dir=directory) as folder:
                made, recorded = Path(folder) / "runtime.so", Path(folder) / "runtime.sha256"
                build(compiler, made)
                recorded.write_bytes(_record_of(path, made.read_bytes()))
                for new, place in ((made, path), (recorded, record)):
                    new.chmod(0o600)  # whatever the umask
                    os.replace(new, place)
        except OSError as error:
            raise LibraryUnavailable(f"the sparse runtime's library cannot be kept in the user's cache: {error}") from None
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
        raise LibraryUnavailable(f"{command[0]} could not compile the sparse runtime: {said[0] if said else error}") from None
