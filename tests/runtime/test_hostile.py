"""Damaged and forged files: no crash, no read out of bounds, no more memory or time than the file and its inputs account for."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import hostile_programs
from tests.support.compiling import needs_compiler
from tests.support.files import conv_node, program_file
from tests.support.hostile import assembled, parts

pytestmark = needs_compiler

RELU = {"op": "activation", "in": [0], "kind": "relu", "slope": None}
WIDE = {"kernel": [2048, 2048], "stride": [1, 1], "padding": [1024, 1024]}


def bomb(nodes: list[dict[str, Any]], size: list[int | None], shape: tuple[int, ...] = (1, 1), kind: str = "image") -> bytes:
    """A small file of nodes that would take much; its weight `w` has the shape and one survivor."""
    weight = torch.zeros(shape)
    weight.view(-1)[-1] = 1
    return program_file(nodes, {"w": weight}, size, kind)


def upsampled(times: int) -> list[dict[str, Any]]:
    return [{"op": "upsample", "in": [value], "factor": [64, 64], "mode": "bilinear", "align_corners": False} for value in range(times)]


def many(count: int, node: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    return [node(value) for value in range(count)]


def with_inputs(content: bytes, count: int) -> bytes:
    """The file with so many equal inputs, all of which are added."""
    header, stored, data = parts(content)
    program = stored["meta"]["program"]
    program["inputs"] = [{**program["inputs"][0], "name": f"x{number}"} for number in range(count)]
    program["nodes"] = [{"op": "add", "in": [0 if not number else count + number - 1, number + 1]} for number in range(count - 1)]
    program["outputs"][0]["value"] = 2 * count - 2
    return assembled(header, stored, data, honest=True)


# Files, with the shape of an input that is given to them where they can be loaded.
BOMBS: dict[str, tuple[Callable[[], bytes], tuple[int, ...]]] = {
    "an image that grows": (lambda: bomb(upsampled(2), [1, 2, 2]), (1, 1, 2, 2)),
    "an image that grows to a plausible size": (lambda: bomb(upsampled(1), [100, 16, 16]), (1, 100, 16, 16)),
    "large inputs that nobody gives": (lambda: bomb([RELU], [1 << 24, 1, 64]), ()),
    "masks of a large input": (lambda: bomb([conv_node(0, "w", padding=[0, 1])], [1, 16384, 16384], (1, 1, 1, 3)), ()),
    "taps of a large input": (lambda: bomb([{"op": "pixels", "in": [0], "start": 1, "count": 1}], [1 << 24, 1, 4], kind="sequence"), ()),
    "a concat of one value": (lambda: bomb([{"op": "concat", "in": [0] * 200_000, "axis": "channels"}], [1, 1, 1]), (1, 1, 1, 1)),
    "many sums": (lambda: with_inputs(bomb([RELU], [1, 1, 1]), 20_000), ()),
    "many norms": (
        lambda: bomb(many(50_000, lambda value: {"op": "affine", "in": [value], "factor": 1.0, "offset": 0.0}), [4096, 1, 1]),
        (1, 4096, 1, 1),
    ),
    "many tables": (
        lambda: bomb(many(2000, lambda value: {"op": "constant", "in": [], "weight": "w"}), [1, 1, 1], (1000, 1000)),
        (1, 1, 1, 1),
    ),
    "windows without end": (
        lambda: bomb(many(9, lambda value: {"op": "max_pool", "in": [value], **WIDE}), [1, 512, 512]),
        (1, 1, 512, 512),
    ),
    "scores of many pixels": (
        lambda: bomb([{"op": "attention", "in": [0, 0, 0], "heads": 1, "causal": False, "scale": 1.0}], [1, 200, 300]),
        (1, 1, 200, 300),
    ),
    "a window far above": (
        lambda: bomb([conv_node(0, "w", padding=[4096, 0], dilation=[4096, 1])], [1, 1, 64], (1, 1, 3, 1)),
        (1, 1, 1, 64),
    ),
    "matrices of few weights": (
        lambda: bomb([{"op": "linear", "in": [0], "weight": "w", "bias": None}], [8192, 1, 1], (8192, 8192)),
        (1, 8192, 1, 1),
    ),
}

RUN = """
import pickle, sys
from pathlib import Path
import numpy as np
from swamp_runtime import library, load_bytes
library.PREBUILT = Path(sys.argv[1])
files, messages = pickle.load(sys.stdin.buffer), []
library.library()
for content, shape in files:
    try:
        model = load_bytes(content, threads=1)
        messages.append(str(model(np.ones(shape)).shape if shape else "loaded"))
    except ValueError as error:
        messages.append(str(error))
print(messages)
# getrusage would also count the process that started this one.
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1], file=sys.stderr)
"""

MEMORY = 900  # MiB; an interpreter with numpy takes 30


def test_small_files_take_little_memory_and_time(compiled_runtime: Path) -> None:
    files = [(make(), shape) for make, shape in BOMBS.values()]
    done = subprocess.run([sys.executable, "-c", RUN, str(compiled_runtime)], input=pickle.dumps(files), capture_output=True, timeout=120)
    assert not done.returncode, done.stderr
    assert int(done.stderr) < 1024 * MEMORY  # kB
    found = dict(zip(BOMBS, eval(done.stdout), strict=True))
    memory, work = (f"the network takes more {what} than one with its weights and inputs may" for what in ("memory", "computations"))
    assert found == {
        "an image that grows": memory,
        "an image that grows to a plausible size": memory,
        "large inputs that nobody gives": "loaded",
        "masks of a large input": "loaded",
        "taps of a large input": "loaded",
        "a concat of one value": memory,
        "many sums": "loaded",
        "many norms": memory,
        "many tables": memory,
        "windows without end": work,
        "scores of many pixels": memory,
        "a window far above": "(1, 1, 1, 64)",
        "matrices of few weights": "(1, 8192, 1, 1)",
    }


@pytest.mark.slow
def test_no_forged_file_does_harm(tmp_path: Path) -> None:
    """Under AddressSanitizer and UndefinedBehaviorSanitizer, on every instruction set."""
    driver = hostile_programs.build_driver(tmp_path)
    for seed, instructions in enumerate(("avx512", "avx2", "generic")):
        outcomes = hostile_programs.fuzz(driver, 3000, seed, instructions, tmp_path)
        assert outcomes["run"] > 500, outcomes
        assert len(outcomes) > 40, outcomes
