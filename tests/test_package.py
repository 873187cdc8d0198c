"""Wheel and source distribution carry what they must."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return out


def test_wheel(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = ("src/swamp", "runtime/src/swamp_runtime")
    tracked = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True).stdout.split()
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    there = [str(path.relative_to(ROOT)) for path in files]
    assert {name.removeprefix("runtime/").removeprefix("src/") for name in there} <= names  # every module, recipe and native source
    assert not tracked or set(there) == set(tracked), "a file of the package is not under version control"
    assert not any(name.startswith("tests") for name in names)


def test_sdist(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
    assert {"src/swamp/recipes/digits.toml", "LICENSE", "README.md", "tests/conftest.py", "constraints.txt", "Makefile"} <= names
    assert {"runtime/pyproject.toml", "runtime/hatch_build.py", "runtime/examples/classify.c"} <= names
