"""The native library: compiled once, kept where nobody else can write, and used from C."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import swamp_runtime
from swamp_runtime import LibraryUnavailable, library

from tests.support.compiling import needs_compiler
from tests.support.files import convolutions

ROOT = Path(__file__).parents[2]


@pytest.fixture
def unbuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine where the library was never compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "PREBUILT", tmp_path / "none.so")
    monkeypatch.delenv("CXX", raising=False)
    yield
    library._built.cache_clear()


@pytest.fixture
def stub_compiler(unbuilt: None, tmp_path: Path) -> Path:
    """A compiler that takes no time and counts what it is asked to link."""
    script = tmp_path / "stub"
    script.write_text(
        "#!/bin/sh\n"
        "for option; do [ $option = -E ] && exit; [ $option = -c ] && compiles=1; done\n"
        f"while [ $# -gt 1 ]; do [ $1 = -o ] && echo library > $2; shift; done\n[ $compiles ] || echo >> {tmp_path}/count\n"
    )
    script.chmod(0o755)
    return script


def built(compiler: Path) -> tuple[Path, int]:
    """The library as a new process would find or make it, and how often it was made so far."""
    library._built.cache_clear()
    path = library._built(str(compiler), library.cache_directory())
    return path, len((compiler.parent / "count").read_text())


def test_the_library_is_made_once_and_again_when_its_source_changes(stub_compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = built(stub_compiler)
    record, kept = sorted(path.parent.iterdir())  # and no temporary beside them
    assert (record.suffix, kept) == (".sha256", path)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert built(stub_compiler) == (path, 1)
    other = stub_compiler.parent / "native"
    shutil.copytree(library.SOURCES, other)
    (other / "plan.hpp").write_text("// another\n")
    monkeypatch.setattr(library, "SOURCES", other)
    changed, count = built(stub_compiler)
    assert changed != path
    assert count == 2


def test_machines_without_a_compiler_get_a_sentence(unbuilt: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = library.library.__wrapped__
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LibraryUnavailable, match=r"needs a C\+\+ compiler, and there is no g\+\+ or clang\+\+ or c\+\+; set CXX to one$"):
        load()
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", os.defpath + os.pathsep + str(tmp_path))
    monkeypatch.setenv("CXX", "broken")
    with pytest.raises(LibraryUnavailable, match=r"broken could not compile the sparse runtime: out of order$"):
        load()
    assert list((tmp_path / "swamp").iterdir()) == []


def test_what_is_no_library_is_reported(unbuilt: None, monkeypatch: pytest.MonkeyPatch) -> None:
    library.PREBUILT.write_text("no library")
    with pytest.raises(LibraryUnavailable, match="the sparse runtime's library cannot be loaded: "):
        library.library.__wrapped__()


def test_no_code_is_loaded_from_where_others_can_write(stub_compiler: Path) -> None:
    library.cache_directory().chmod(0o777)
    with pytest.raises(LibraryUnavailable, match="not this user's alone, so no code is loaded from it; remove it") as error:
        library.cache_directory()
    assert "chmod" not in str(error.value)


def replaced(path: Path, content: bytes) -> None:
    """Put a new file in the place of one, as others could in a directory that they can write to."""
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o600)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


# What can be wrong with the library or with its record, as a function that makes it so.
WRONGS: dict[str, Callable[[Path, Path], object]] = {
    "empty": lambda made, record: replaced(made, b""),
    "truncated": lambda made, record: replaced(made, made.read_bytes()[:-1]),
    "planted": lambda made, record: replaced(made, b"planted"),
    "planted beside a record that was copied from another library": lambda made, record: (
        replaced(made, b"planted"),
        replaced(record, library._record_of(made.with_name("runtime-other.so"), b"planted")),
    ),
    "without a record": lambda made, record: record.unlink(),
    "with an empty record": lambda made, record: replaced(record, b""),
    "writable by others": lambda made, record: made.chmod(0o622),
    "a record writable by others": lambda made, record: record.chmod(0o620),
    "a link": lambda made, record: linked(made),
    "a record that is a link": lambda made, record: linked(record),
    "a second name of another file": lambda made, record: made.with_name("elsewhere").hardlink_to(made),
    "a pipe": lambda made, record: piped(made),
}


@pytest.mark.parametrize("wrong", WRONGS)
def test_a_library_that_others_may_have_put_there_is_made_again(wrong: str, stub_compiler: Path) -> None:
    path, count = built(stub_compiler)
    assert built(stub_compiler) == (path, 1) == (path, count)
    WRONGS[wrong](path, path.with_suffix(".sha256"))
    assert built(stub_compiler) == (path, 2)
    assert path.read_bytes() == b"library\n"
    assert path.lstat().st_mode & 0o777 == 0o600
    assert built(stub_compiler) == (path, 2)


def test_a_library_of_another_user_is_not_believed_after_the_directory_was_made_private(
    stub_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever could write to the directory has put a library and its record there; its owner then makes it private."""
    path, _ = built(stub_compiler)
    assert library._own_content(path) == b"library\n"
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    assert library._own_content(path) is None
    assert library._own_content(path.with_suffix(".sha256")) is None


def test_a_library_that_cannot_be_replaced_is_reported(stub_compiler: Path) -> None:
    path, _ = built(stub_compiler)
    path.unlink()
    (path / "full").mkdir(parents=True)
    with pytest.raises(LibraryUnavailable, match="cannot be kept in the user's cache"):
        built(stub_compiler)


def test_several_threads_may_make_it_at_a_time(stub_compiler: Path) -> None:
    library._built.cache_clear()
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(library._built(str(stub_compiler), library.cache_directory()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert built(stub_compiler)[0] == found[0]


# -- from C ------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classify(compiled_runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example program, compiled as C without a warning."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler on this machine")
    program = tmp_path_factory.mktemp("c") / "classify"
    options = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-I", str(library.SOURCES)]
    command = [compiler, *options, str(ROOT / "runtime/examples/classify.c"), str(compiled_runtime), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    return program


@needs_compiler
def test_the_example_in_c_prints_the_classes_that_python_finds(classify: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.swamp"
    path.write_bytes(convolutions())
    x = np.random.default_rng(0).normal(size=(5, 3, 12, 12)).astype(np.float32)
    expected = swamp_runtime.load(path)(x).reshape(5, -1).argmax(1)
    done = subprocess.run([classify, path, "5"], input=x.tobytes(), capture_output=True)
    assert ([int(line) for line in done.stdout.split()], done.returncode) == (expected.tolist(), 0)


@needs_compiler
def test_the_example_in_c_refuses_with_a_sentence(classify: Path, tmp_path: Path) -> None:
    path, free = tmp_path / "model.swamp", tmp_path / "free.swamp"
    path.write_bytes(convolutions())
    free.write_bytes(convolutions(None, None))
    for arguments, why in (
        (["none.swamp", "1"], "none.swamp cannot be opened"),
        ([__file__, "1"], "its header is cut off or too long"),
        ([free, "1"], "the network takes tokens, or inputs of any size"),
        ([path, "9"], "standard input holds fewer numbers than the batch needs"),
        ([path], "usage: classify MODEL BATCH [< float32 numbers]"),
    ):
        done = subprocess.run([classify, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert (done.stdout, done.stderr, done.returncode) == ("", f"classify: {why}\n", 2)
