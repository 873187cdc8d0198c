"""Convolutions of all shapes, with float and 8-bit weights, on every instruction set, against the simple executor."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from swamp.export import reader
from tests.support.compiling import needs_compiler
from tests.support.files import conv_node, program_file
from tests.support.programs import run_program

pytestmark = needs_compiler

RUN = """
import pickle, sys
from pathlib import Path
from swamp_runtime import library, load_bytes
library.PREBUILT = Path(sys.argv[1])
cases = pickle.load(sys.stdin.buffer)
answers = [[load_bytes(content, threads=threads)(x) for threads in (1, 2, 3)] for content, x in cases]
sys.stdout.buffer.write(pickle.dumps((library.instructions(), answers)))
"""


class Case(NamedTuple):
    """A file with an input for it."""

    content: bytes
    x: np.ndarray


def sparse_weight(shape: tuple[int, ...], draw: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=draw) * (torch.rand(shape, generator=draw) < 0.4)


def convolution(seed: int, whole: bool) -> Case:
    """A convolution of any geometry, followed by another one so that its numbers are read in several ways."""
    choose, draw = random.Random(seed), torch.Generator().manual_seed(seed)
    groups, channels, outputs = choose.choice([(1, 3, 5), (1, 8, 4), (2, 4, 6), (4, 4, 4)])
    kernel = [choose.choice([1, 2, 3, 5]), choose.choice([1, 2, 3, 7])]
    dilation = [choose.choice([1, 1, 2]), choose.choice([1, 1, 2, 5])]
    padding = [choose.choice([0, 1, 2, 4]), choose.choice([0, 1, 3, 8])]
    stride = [choose.choice([1, 1, 2, 3]), choose.choice([1, 1, 2, 3])]
    sides = [max(choose.choice([1, 5, 9, 16]), dilation[i] * (kernel[i] - 1) + 1 - 2 * padding[i]) for i in (0, 1)]
    if seed % 5 == 0:  # far to the side
        kernel, dilation, padding, stride, sides = [1, 3], [1, 130], [0, 130], [1, 1], [2, choose.choice([17, 64, 300])]
    tensors = {
        "first": sparse_weight((outputs, channels // groups, *kernel), draw),
        "second": sparse_weight((3, outputs, 3, 3), draw),
        "bias": torch.randn(outputs, generator=draw),
    }
    scale: dict[str, Any] = {"input": [0.25, choose.choice([0, 64])]} if whole else {}
    nodes: list[dict[str, Any]] = [
        conv_node(0, "first", "bias", stride=stride, padding=padding, dilation=dilation, groups=groups, **scale),
        {"op": "activation", "in": [1], "kind": "relu", "slope": None},
        conv_node(2, "second", padding=[1, 1]),
    ]
    if whole:  # The 8-bit sums are an output: nothing but the weights' scales is rounded.
        nodes = nodes[:1]
    content = program_file(nodes, tensors, [channels, *sides], values="int8" if whole else "float32")
    x = torch.randint(-48, 48, (2, channels, *sides), generator=draw).numpy() / np.float32(8)  # also halves of a step
    return Case(content, x)


def linear_layers(seed: int, whole: bool) -> Case:
    """Two layers at each token, or of vectors, which are computed side by side."""
    draw = torch.Generator().manual_seed(seed)
    tensors = {"first": sparse_weight((7, 9), draw), "second": sparse_weight((4, 7), draw), "bias": torch.randn(7, generator=draw)}
    scale: dict[str, Any] = {"input": [0.25, 64]} if whole else {}
    nodes: list[dict[str, Any]] = [{"op": "linear", "in": [0], "weight": "first", "bias": "bias", **scale}]
    if not whole:
        nodes += [{"op": "softmax", "in": [1]}, {"op": "linear", "in": [2], "weight": "second", "bias": None}]
    kind, shape = ("vector", (19, 9)) if seed % 2 else ("sequence", (2, 21, 9))
    content = program_file(nodes, tensors, [9, 1, shape[1] if len(shape) == 3 else 1], kind, "int8" if whole else "float32")
    return Case(content, torch.randint(-48, 48, shape, generator=draw).numpy() / np.float32(8))


def far_and_high(seed: int, whole: bool) -> Case:
    """Windows that reach far to the sides, and then up and down: what is stored for the first must not spill into the second."""
    draw = torch.Generator().manual_seed(seed)
    right_and_left = torch.tensor([[0.0, 0, 1], [1, 0, 0]])
    tensors = {"far": right_and_left[:, None, None].repeat(1, 2, 1, 1), "high": sparse_weight((2, 2, 3, 3), draw)}
    scale: dict[str, Any] = {"input": [1.0, 64]} if whole else {}
    nodes = [
        {"op": "activation", "in": [0], "kind": "relu", "slope": None},
        conv_node(1, "far", padding=[0, 500], dilation=[1, 500], **scale),
        {"op": "max_pool", "in": [2], "kernel": [1, 2], "stride": [1, 2], "padding": [0, 0]},
        conv_node(3, "high", padding=[1, 1], **scale),
    ]
    content = program_file(nodes, tensors, [2, 1, 700], values="int8" if whole else "float32")
    return Case(content, torch.randint(-9, 9, (2, 2, 1, 700), generator=draw).numpy().astype(np.float32))


def in_bands(seed: int, whole: bool) -> Case:
    """A residual network that is large enough for several threads to divide its images: each computes a band of rows, and its neighbours
    read the rows at its edges."""
    draw = torch.Generator().manual_seed(seed)

    def weight(*shape: int) -> Tensor:
        return torch.randint(-3, 4, shape, generator=draw) * (torch.rand(shape, generator=draw) < 0.1) / 4.0

    tensors = {"stem": weight(32, 3, 3, 3), "high": weight(32, 32, 5, 1), "down": weight(48, 32, 3, 3), "last": weight(5, 48)}
    tensors |= {"wide": weight(48, 48, 3, 3), "shortcut": weight(48, 32, 1, 1)}
    relu: dict[str, Any] = {"op": "activation", "kind": "relu", "slope": None}
    nodes: list[dict[str, Any]] = [
        conv_node(0, "stem", padding=[1, 1]),
        {**relu, "in": [1]},
        conv_node(2, "high", padding=[2, 0]),
        {"op": "activation", "in": [3], "kind": "hardsigmoid", "slope": None},
        conv_node(4, "down", padding=[1, 1], stride=[2, 2]),
        conv_node(4, "shortcut", stride=[2, 2]),
        {"op": "add", "in": [5, 6]},
        conv_node(7, "wide", padding=[1, 1]),
        {"op": "max_pool", "in": [8], "kernel": [2, 2], "stride": [2, 2], "padding": [0, 0]},
        {"op": "global_mean", "in": [9]},
        {"op": "linear", "in": [10], "weight": "last", "bias": None},
    ]
    if whole:  # Numbers that are rounded must not differ in their last digits.
        tensors["stem"] = weight(128, 3, 3, 3)
        nodes = [{**relu, "in": [0]}, conv_node(1, "stem", padding=[1, 1], input=[0.25, 64])]
    content = program_file(nodes, tensors, [3, 24, 24], values="int8" if whole else "float32")
    return Case(content, torch.randint(-48, 48, (1, 3, 24, 24), generator=draw).numpy() / np.float32(8))


CASES = [
    make(seed, whole)
    for whole in (False, True)
    for make, seeds in ((convolution, 30), (linear_layers, 4), (far_and_high, 2), (in_bands, 2))
    for seed in range(seeds)
]


def expected(case: Case) -> np.ndarray:
    found = reader.decode(case.content)
    assert found.program
    return run_program(found.program, found.tensors, [case.x])["y"]


def answers(runtime: Path, instructions: str) -> tuple[str, list[list[np.ndarray]]]:
    command = [sys.executable, "-c", RUN, str(runtime)]
    given = pickle.dumps([tuple(case) for case in CASES])
    done = subprocess.run(command, input=given, capture_output=True, env={**os.environ, "SWAMP_INSTRUCTIONS": instructions})
    assert not done.returncode, done.stderr.decode()
    return pickle.loads(done.stdout)


@pytest.fixture(scope="module")
def right() -> list[np.ndarray]:
    return [expected(case) for case in CASES]


@pytest.mark.parametrize("instructions", ["avx512", "avx2", "generic"])
def test_every_instruction_set_computes_the_same(instructions: str, compiled_runtime: Path, right: list[np.ndarray]) -> None:
    used, found = answers(compiled_runtime, instructions)
    if used != instructions:
        pytest.skip(f"this processor has no {instructions}")
    for number, (ours, theirs) in enumerate(zip(found, right, strict=True)):
        for threads in ours[1:]:
            np.testing.assert_array_equal(ours[0], threads, err_msg=f"case {number}: threads change the result")
        np.testing.assert_allclose(ours[0], theirs, rtol=1e-4, atol=2e-6 * np.abs(theirs).max() + 1e-30, err_msg=f"case {number}")


def test_an_unknown_instruction_set_means_portable_code(compiled_runtime: Path) -> None:
    code = "import sys, pathlib, swamp_runtime as r; r.library.PREBUILT = pathlib.Path(sys.argv[1]); print(r.instructions())"
    command = [sys.executable, "-c", code, str(compiled_runtime)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "SWAMP_INSTRUCTIONS": "sse9"})
    assert done.stdout == "generic\n"
