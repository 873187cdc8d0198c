"""The distribution swamp-runtime, installed where there is no torch."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import swamp_runtime

from tests.support.compiling import needs_compiler
from tests.support.files import convolutions

RUNTIME = Path(__file__).parents[2] / "runtime"
NATIVE = {f"swamp_runtime/native/{path.name}" for path in (RUNTIME / "src/swamp_runtime/native").iterdir()}
LIBRARY = "swamp_runtime/libswamp_runtime.so"

RUN = """
import importlib.util, sys
import numpy as np
import swamp_runtime
from swamp_runtime import library
assert importlib.util.find_spec("torch") is None and importlib.util.find_spec("swamp") is None
assert swamp_runtime.__file__.startswith(sys.prefix) and library.PREBUILT.exists()
model = swamp_runtime.load(sys.argv[1])
np.save(sys.argv[3], model(np.load(sys.argv[2])))
"""


def build_wheel(directory: Path, **environment: str) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(RUNTIME)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert not done.returncode, done.stdout + done.stderr
    (wheel,) = directory.glob("*.whl")
    return wheel


def test_without_a_compiler_the_wheel_holds_the_source_alone(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, CXX="no-such-compiler")
    assert wheel.name == f"swamp_runtime-{swamp_runtime.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= NATIVE
    assert LIBRARY not in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
@needs_compiler
def test_an_installed_wheel_needs_numpy_alone(compiled_runtime: Path, tmp_path: Path) -> None:
    """In an environment of its own, without a compiler, a wheel that was built with one loads and runs a file."""
    wheel = build_wheel(tmp_path / "dist")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {*NATIVE, LIBRARY} <= names
    assert wheel.name.startswith(f"swamp_runtime-{swamp_runtime.__version__}-py3-none-")
    assert not wheel.name.endswith("any.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--no-index", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for name in ("numpy", "numpy.libs"):  # as it is installed here; nothing is downloaded
        if (found := Path(np.__file__).parents[1] / name).exists():
            (packages / name).symlink_to(found)
    x = np.random.default_rng(0).normal(size=(2, 3, 12, 12)).astype(np.float32)
    (tmp_path / "model.swamp").write_bytes(convolutions())
    np.save(tmp_path / "x.npy", x)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CXX")} | {"PATH": str(tmp_path)}
    command = [str(python), "-c", RUN, *(str(tmp_path / name) for name in ("model.swamp", "x.npy", "y.npy"))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), swamp_runtime.load_bytes(convolutions())(x))
