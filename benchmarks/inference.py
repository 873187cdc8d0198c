"""Time sparse networks on a CPU: the runtime in float32 and int8 beside torch and onnxruntime, which compute with zeros.

    python benchmarks/inference.py [wrn28-2 vgg13 resnet18 encoder] [--sparsity 50 90 95 98] [--batch 1 64] [--threads 1] [--compiled]

Networks are pruned by magnitude from their random initialisation, WRN-28-2 and VGG-13 over all convolutions together, the encoder (six
layers of width 384, the size of MiniLM, texts of 128 tokens) over its linear layers. All runtimes are timed in turns in one process, and
the fastest of all calls counts; ratios are to onnxruntime with the dense network.
"""

from __future__ import annotations

import os
import sys

if "--threads" in sys.argv:  # BLAS libraries read it when they are loaded
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[sys.argv.index("--threads") + 1]
else:
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import swamp_runtime
import torch
from torch import Tensor, nn

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.drawing.tables import Table
from swamp.export.compiled import encoded
from swamp.export.formats.onnx import graph_of, required
from swamp.export.formats.sparse import encode
from swamp.export.program import read_program
from swamp.export.quantise import quantise
from swamp.tasks.models import find_model
from swamp.terminal import print_table


class Measured(NamedTuple):
    """The milliseconds of one network in one runtime."""

    network: str
    sparsity: float
    batch: int
    threads: int
    runtime: str
    milliseconds: float
    num_bytes: int


class Encoder(nn.Module):
    """Six layers of a transformer with the sizes of MiniLM."""

    def __init__(self, width: int = 384, heads: int = 12, depth: int = 6, length: int = 128) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(1000, width), nn.Parameter(0.02 * torch.randn(length, width))
        layers = (nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", batch_first=True) for _ in range(depth))
        self.layers = nn.ModuleList(layers)
        self.classifier = nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x[:, 0])


def network(name: str, sparsity: float) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """Return a pruned network, and a function that makes a batch of inputs."""
    torch.manual_seed(0)
    if name == "encoder":
        model: nn.Module = Encoder().eval()
        weights = [p for n, p in model.named_parameters() if p.ndim == 2 and n.startswith("layers")]
        inputs: Callable[[int], Tensor] = lambda batch: torch.randint(1000, (batch, 128))  # noqa: E731
    else:
        model = find_model(name)(3, 10).eval()
        weights = [p for p in model.parameters() if p.ndim == 4]
        inputs = lambda batch: torch.randn(batch, 3, 32, 32)  # noqa: E731
    if sparsity:
        everything = torch.cat([weight.detach().abs().flatten() for weight in weights])
        threshold = everything.kthvalue(int(sparsity * everything.numel())).values
        with torch.no_grad():
            for weight in weights:
                weight.mul_(weight.abs() > threshold)
    return model, inputs


def int8_file(model: nn.Module, inputs: Tensor) -> bytes:
    state = State.of(model)
    mask = Mask({name: tensor != 0 for name, tensor in state.parameters.items() if tensor.ndim > 1 and bool((tensor == 0).any())})
    found = quantise(read_program(model, (inputs,)), model, mask, lambda module: module(inputs))
    return encode(state, mask, "int8", program=found.program)


Runtimes = dict[str, tuple[Callable[[Tensor], Any], int]]  # a function of a batch, and the bytes of its file


def dense_runtimes(dense: nn.Module, inputs: Callable[[int], Tensor], threads: int, compiled: bool) -> Runtimes:
    """Return the runtimes that compute with zeros, for which any network of one size takes the same time."""
    onnxruntime = required("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(graph_of(dense, inputs(2), {}), options, providers=["CPUExecutionProvider"])
    found: Runtimes = {"onnxruntime": (lambda x: session.run(None, {"input": x.numpy()}), 0), "torch": (dense, 0)}
    return {**found, "torch compiled": (torch.compile(dense), 0)} if compiled else found


def _on_numpy(runtime: Callable[[Any], Any], x: Tensor) -> Any:
    return runtime(x.numpy())


def sparse_runtimes(model: nn.Module, inputs: Callable[[int], Tensor], threads: int) -> Runtimes:
    found: Runtimes = {}
    for name, content in (("swamp float32", encoded(model, (inputs(2),), {})), ("swamp int8", int8_file(model, inputs(16)))):
        runtime = swamp_runtime.load_bytes(content, threads)
        found[name] = (partial(_on_numpy, runtime), len(content))
    return found


def timed(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the milliseconds of the fastest call of each."""
    least = dict.fromkeys(calls, float("inf"))
    with torch.inference_mode():
        for call in calls.values():
            call()
        for _ in range(rounds):
            for name, call in calls.items():
                end = time.perf_counter() + 0.1
                while True:
                    begin = time.perf_counter()
                    call()
                    now = time.perf_counter()
                    least[name] = min(least[name], 1000 * (now - begin))
                    if now > end:
                        break
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["wrn28-2"])
    parser.add_argument("--sparsity", type=float, nargs="+", default=[90.0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--compiled", action="store_true", help="also torch.compile, which takes a while")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    measured: list[Measured] = []
    for name in arguments.networks:
        dense, inputs = network(name, 0.0)
        with_zeros = dense_runtimes(dense, inputs, arguments.threads, arguments.compiled)
        for sparsity in arguments.sparsity:
            model, _ = network(name, sparsity / 100)
            runtimes = {**with_zeros, **sparse_runtimes(model, inputs, arguments.threads)}
            x = inputs(2)
            with torch.no_grad():
                expected = model(x).numpy()
            np.testing.assert_allclose(runtimes["swamp float32"][0](x), expected, atol=1e-4 * np.abs(expected).max(), rtol=0)
            for batch in arguments.batch:
                x = inputs(batch)
                found = timed({way: partial(call, x) for way, (call, _) in runtimes.items()}, arguments.rounds)
                measured += [Measured(name, sparsity, batch, arguments.threads, way, found[way], runtimes[way][1]) for way in found]
    rows = []
    for one in measured:
        reference = next(m for m in measured if m.runtime == "onnxruntime" and m[:4] == one[:4])
        numbers = [f"{one.milliseconds:.3f}", f"{one.milliseconds / reference.milliseconds:.2f}"]
        rows.append(
            [one.network, f"{one.sparsity:g}", str(one.batch), one.runtime, *numbers, f"{one.num_bytes:,}" if one.num_bytes else "–"]
        )
    header = ["network", "sparsity %", "batch", "runtime", "ms", "/ onnxruntime", "bytes"]
    versions = f"torch {torch.__version__}, onnxruntime {required('onnxruntime').__version__}"
    note = f"{arguments.threads} thread(s), {swamp_runtime.instructions()}, {versions}"
    print_table(Table("Sparse networks on a CPU", header, rows, note))
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode([one._asdict() for one in measured]))


if __name__ == "__main__":
    main()
