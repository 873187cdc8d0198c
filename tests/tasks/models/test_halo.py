"""The CUDA source of `halo_kernels.py` computes the right values: compiled for the CPU, with its instructions for matrices emulated."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support import triton_device

SUPPORT = Path(triton_device.__file__).parent
SOURCE = Path(__file__).parents[3] / "src/swamp/tasks/models/halo.cu"


def compiled(folder: Path, **values: int) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    library = folder / "halo.so"
    defined = [f"-D{name}={value}" for name, value in values.items()]
    options = ["-O1", "-std=c++20", "-pthread", "-shared", "-fPIC", f"-I{SOURCE.parent}"]
    subprocess.run([compiler, *options, *defined, str(SUPPORT / "emulated_cuda.cpp"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape).bfloat16().contiguous(memory_format=torch.channels_last)


def by_tile(images: Tensor, rows: int) -> Tensor:
    """The numbers of each channel in each tile, as channels × tiles × numbers."""
    count, channels, height, width = images.shape
    return images.double().view(count, channels, height // rows, rows * width).transpose(0, 1).reshape(channels, -1, rows * width)


def close(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    assert (found.double() - wanted).norm() <= tolerance * wanted.norm()


SIZES = [(32, 16, 8, 16, 4, 64), (16, 32, 4, 32, 4, 64), (16, 16, 8, 8, 8, 32)]  # channels in and out, height, width, rows, threads
KINDS = ["NORM", "BACKWARD", "NORM_BACKWARD"]
# Each is compiled, which takes a second: of every kind and every size there is one in `make test`.
AT_ONCE = [
    pytest.param(*size, kind, marks=[] if row == column else pytest.mark.slow)
    for row, size in enumerate(SIZES)
    for column, kind in enumerate(KINDS)
]


@pytest.mark.parametrize(("inputs", "outputs", "height", "width", "rows", "threads", "kind"), AT_ONCE)
def test_values(inputs: int, outputs: int, height: int, width: int, rows: int, threads: int, kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    backward = kind != "NORM"
    flags = {"NORM": not backward, "NORM_BACKWARD": kind == "NORM_BACKWARD", "BACKWARD": backward, "MASK": backward, "ADD": not backward}
    sizes = {"IN": inputs, "OUT": outputs, "HEIGHT": height, "WIDTH": width, "ROWS": rows, "THREADS": threads}
    library = compiled(tmp_path, **sizes, **{name: int(value) for name, value in flags.items()})
    x, weight = drawn(2, inputs, height, width), drawn(*((inputs, outputs) if backward else (outputs, inputs)), 3, 3)
    added, s, s_read = drawn(2, outputs, height, width), drawn(2, outputs, height, width), drawn(2, inputs, height, width)
    norms = [[torch.randn(32), torch.rand(32) + 0.5, torch.rand(32) + 0.5, torch.randn(32)] for _ in range(2)]
    by_gamma, by_beta = 100 * torch.randn(2, 32)
    y, read, blocks = torch.full_like(s, torch.nan), torch.full_like(x, torch.nan), 2 * height // rows
    partial = torch.full((2, outputs, blocks), torch.nan)
    tensors = x, weight, y, read, added, s, *norms[0], s_read, *norms[1], by_gamma, by_beta, partial
    library.run(blocks, 2 * height * width, *(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors))

    mean, scale, gamma, beta = (tensor[:outputs, None, None] for tensor in norms[0])
    mean_read, scale_read, gamma_read, beta_read, by_gamma, by_beta = (
        tensor[:inputs, None, None].double() for tensor in (*norms[1], by_gamma, by_beta)
    )
    if kind == "NORM":
        close(read, F.relu((x.double() - mean_read) * scale_read * gamma_read + beta_read), 3e-3)
        close(y, F.conv2d(read.double(), weight.double(), padding=1) + added.double(), 3e-3)
        wanted = by_tile(y, rows).mean(2), by_tile(y, rows).var(2, correction=0) * rows * width
    else:
        gradient = x
        if kind == "NORM_BACKWARD":
            pixels, normed = 2 * height * width, (s_read.double() - mean_read) * scale_read
            close(read, scale_read * gamma_read * (x.double() - by_beta / pixels - normed * by_gamma / pixels), 3e-3)
            gradient = read
        normed = (s.float() - mean) * scale
        close(y, F.conv_transpose2d(gradient.double(), weight.double(), padding=1) * (normed * gamma + beta > 0), 3e-3)
        wanted = by_tile(y, rows).sum(2), (by_tile(y, rows) * by_tile(normed, rows)).sum(2)
    close(partial[0], wanted[0], 1e-5)
    close(partial[1], wanted[1], 1e-5)


def test_where_nvrtc_fails_other_kernels_are_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("triton")
    from swamp.tasks.models import halo_kernels

    def failing(*arguments: object, **settings: object) -> None:
        raise RuntimeError("no NVRTC here")

    monkeypatch.setattr(torch.cuda, "_compile_kernel", failing)
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    halo_kernels._compiles.cache_clear()
    halo_kernels._kernel.cache_clear()
    found = [halo_kernels._compiles(32, 32, 32, 32, halo_kernels.HaloTile(8, 128), 0) for _ in range(2)]
    halo_kernels._compiles.cache_clear()
    assert found == [False, False]
    assert [record.getMessage().count("no NVRTC here") for record in caplog.records] == [1]
