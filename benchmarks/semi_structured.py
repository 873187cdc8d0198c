"""2:4 networks on a GPU: layers and whole networks, dense and with torch's semi-structured kernels.

    python benchmarks/semi_structured.py [--seconds 90] [--json FILE] [PART …]

Latency follows from the pattern, not from the weights, so these are drawn and pruned 2:4 by magnitude. Everything is in bf16, images
with channels innermost, as CUDA graphs, so that what a call costs the host does not count (the column `called` has it: without graphs),
in turns; the median of the rounds counts. Ratios are to the dense layer or network, below 1 is faster.

    linear        layers of RoBERTa and larger ones
    convolutions  those of WRN-28-2 and ResNet-50; the dense ones are cuDNN's, the fastest that it finds
    networks      WRN-28-2, WRN-28-10, ResNet-50 and an encoder of RoBERTa-base's size
    compiled      two of them through torch.compile

`matrices`: the 2:4 layers as dense products, which tells what copying out windows costs. `2:4`: the same with sparse weights. `tuned`:
with the fastest of cuSPARSELt's kernels for each shape. `error`: the largest difference of the outputs from those of the same weights in
float32, relative to the largest output; `dense error` is the dense network's own in bf16. Each part is a process with a share of the
time, and each row is printed when it is there: what fails is named, and the rest goes on.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.export.semi_structured import semi_structured, tune, with_matrices
from swamp.tasks.models import find_model

ROUNDS = 11
SECONDS = 0.004  # of one measurement, about
DEVICE, DTYPE = "cuda", torch.bfloat16
# inputs, outputs, rows
LINEAR = [
    (768, 768, 8192),
    (768, 3072, 8192),
    (3072, 768, 8192),
    (768, 3072, 128),
    (4096, 4096, 64),
    (4096, 4096, 512),
    (4096, 4096, 8192),
    (4096, 11008, 8192),
]
# inputs, outputs, kernel, side, images
CONVOLUTIONS = [
    (64, 64, 3, 16, 256),
    (128, 128, 3, 8, 256),
    (64, 64, 3, 56, 64),
    (256, 64, 1, 56, 64),
    (256, 256, 3, 14, 64),
    (1024, 256, 1, 14, 64),
    (512, 2048, 1, 7, 64),
    (512, 512, 3, 7, 64),
]
NETWORKS = [("wrn28-2", 1), ("wrn28-2", 256), ("resnet50", 1), ("resnet50", 64), ("encoder", 1), ("encoder", 64), ("wrn28-10", 256)]
COMPILED = [("encoder", 64), ("wrn28-2", 256)]


class EncoderLayer(nn.Module):
    """One of RoBERTa-base's: its linear layers are what is pruned in text."""

    def __init__(self, width: int = 768, inner: int = 3072, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)
        x = self.norm1(x + self.out(attended))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


def two_of_four(weight: Tensor) -> Tensor:
    """The two largest of four neighbouring inputs stay."""
    inner = weight.movedim(1, -1)
    groups = inner.reshape(-1, 4)
    kept = torch.zeros_like(groups).scatter_(1, groups.abs().topk(2, dim=1).indices, 1.0)
    return (groups * kept).reshape(inner.shape).movedim(-1, 1).contiguous()


def pruned(model: nn.Module) -> nn.Module:
    """With 2:4 weights wherever a layer has fours of inputs."""
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)) and module.weight.shape[1] % 4 == 0:
            module.weight.data = two_of_four(module.weight.data)
    return model.eval().requires_grad_(False)


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    with torch.device(DEVICE):
        return pruned(nn.Sequential(*(EncoderLayer() for _ in range(12))) if name == "encoder" else find_model(name)(3, 1000))


def network_input(name: str, batch: int) -> Tensor:
    if name == "encoder":
        return torch.randn(batch, 128, 768, device=DEVICE)
    side = 224 if name == "resnet50" else 32
    return torch.randn(batch, 3, side, side, device=DEVICE).contiguous(memory_format=torch.channels_last)


def in_16_bits(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).to(DTYPE).to(memory_format=torch.channels_last)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected).abs().max() / expected.abs().max())


# -- time -----------------------------------------------------------------------------------------------------------------------------


def captured(call: Callable[[], Tensor], times: int) -> tuple[Callable[[], None], Tensor]:
    """A CUDA graph of so many calls, and the result of the last."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries choose kernels and allocate on the first calls
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # relaxed: cuSPARSELt prepares each product anew, and may allocate for it
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        for _ in range(times):
            result = call()
    return graph.replay, result


def elapsed(work: Callable[[], object], times: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / times / 1e3


def in_turns(works: dict[str, Callable[[], object]], calls: int = 1) -> dict[str, float]:
    """Seconds of a call of each, the median of the rounds."""
    repeats = {name: max(round(SECONDS / max(elapsed(work, 2), 1e-6)), 1) for name, work in works.items()}
    rounds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            rounds[name].append(elapsed(work, repeats[name]) / calls)
    return {name: statistics.median(found) for name, found in rounds.items()}


def compare(models: dict[str, nn.Module], x: Tensor, expected: Tensor, calls: int) -> dict[str, Any]:
    """Seconds and errors of each model; what cannot be run is left out, and why is told under `failed`."""
    works: dict[str, Callable[[], object]] = {}
    row: dict[str, Any] = {"errors": {}, "failed": {}, "called": {}}

    def call(name: str) -> Callable[[], Tensor]:
        def once() -> Tensor:
            # compilers and inference mode do not always agree
            with torch.no_grad() if "compiled" in name else torch.inference_mode():
                return models[name](x)

        return once

    for name in models:
        try:
            row["errors"][name] = error(call(name)(), expected)
            row["called"][name] = in_turns({name: call(name)})[name]
            work, result = captured(call(name), calls)
            work()
            torch.cuda.synchronize()
            row["errors"][name] = max(row["errors"][name], error(result, expected))
            works[name] = work
        except Exception as failure:  # the kernels' own errors have any class, and the other columns are worth having
            row["failed"][name] = sentence(failure)
    return {**row, "seconds": in_turns(works, calls)}


def sentence(failure: Exception) -> str:
    return (str(failure).splitlines() or [""])[0][:200] or type(failure).__name__


# -- parts ----------------------------------------------------------------------------------------------------------------------------


def variants(model: nn.Module, x: Tensor) -> tuple[dict[str, nn.Module], list[str], dict[str, str]]:
    """The model in 16 bits in all ways that can be made, which weights are sparse in them, and what could not be made."""
    made: dict[str, nn.Module] = {"dense": in_16_bits(model)}
    matrices, changed = with_matrices(model)
    if any(isinstance(module, nn.Conv2d) for module in model.modules()):  # of linear layers that is the dense model
        made["matrices"] = in_16_bits(matrices)
    failed: dict[str, str] = {}
    for name in ("2:4", "tuned"):
        try:
            made[name], changed = semi_structured(model, DTYPE)
            if name == "tuned":
                tune(made[name], x)
        except Exception as failure:
            made.pop(name, None)
            failed[name] = sentence(failure)
    return made, changed, failed


def measured(model: nn.Module, x: Tensor, calls: int) -> dict[str, Any]:
    with torch.inference_mode():
        expected = model(x)
    x = x.to(DTYPE)
    made, changed, failed = variants(model, x)
    layers = sum(isinstance(module, (nn.Conv2d, nn.Linear)) for module in model.modules())
    row = compare(made, x, expected, calls)
    return {"layers": f"{len(changed)}/{layers}", **row, "failed": {**failed, **row["failed"]}}


def linear(inputs: int, outputs: int, rows: int) -> dict[str, Any]:
    with torch.device(DEVICE):
        return measured(pruned(nn.Linear(inputs, outputs)), torch.randn(rows, inputs), 10)


def convolution(inputs: int, outputs: int, kernel: int, side: int, images: int) -> dict[str, Any]:
    with torch.device(DEVICE):
        layer = pruned(nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False))
        return measured(layer, torch.randn(images, inputs, side, side).contiguous(memory_format=torch.channels_last), 10)


def whole(name: str, batch: int) -> dict[str, Any]:
    return measured(network(name), network_input(name, batch), 1)


def compiled(name: str, batch: int) -> dict[str, Any]:
    model, x = network(name), network_input(name, batch)
    with torch.inference_mode():
        expected = model(x)
    made = {"dense": in_16_bits(model), "compiled": torch.compile(in_16_bits(model))}
    made["2:4"], changed = semi_structured(model, DTYPE)
    made["2:4 compiled"] = torch.compile(made["2:4"])
    return {"layers": str(len(changed)), **compare(made, x.to(DTYPE), expected, 1)}


Case = tuple[str, Callable[[], dict[str, Any]]]
PARTS: dict[str, list[Case]] = {
    "linear": [(f"{i} → {o}, {rows} rows", partial(linear, i, o, rows)) for i, o, rows in LINEAR],
    "convolutions": [(f"{k}×{k}, {i} → {o}, {n} × {side}²", partial(convolution, i, o, k, side, n)) for i, o, k, side, n in CONVOLUTIONS],
    "networks": [(f"{name}, batch {batch}", partial(whole, name, batch)) for name, batch in NETWORKS],
    "compiled": [(f"{name}, batch {batch}", partial(compiled, name, batch)) for name, batch in COMPILED],
}


# -- words ----------------------------------------------------------------------------------------------------------------------------


def header(columns: list[str]) -> str:
    names = ["", "2:4 layers", "dense ms", *columns, "called", "error", "dense error"]
    return "\n".join(["", f"| {' | '.join(names)} |", "|" + "---|" * len(names)])


def line(row: dict[str, Any], columns: list[str]) -> str:
    seconds, dense = row["seconds"], row["seconds"].get("dense", float("nan"))
    ratios = [f"{seconds[name] / dense:.2f}" if name in seconds else "–" for name in columns]
    called = row["called"]
    without = f"{called['2:4'] / called['dense']:.2f}" if {"2:4", "dense"} <= called.keys() else "–"
    sparse = [value for name, value in row["errors"].items() if name in ("2:4", "tuned", "2:4 compiled")]
    errors = [f"{max(sparse):.1e}" if sparse else "–", f"{row['errors'].get('dense', float('nan')):.1e}"]
    return f"| {' | '.join([row['what'], row['layers'], f'{1e3 * dense:.4f}', *ratios, without, *errors])} |"


def run(part: str, json_file: Path | None) -> None:
    torch.backends.cudnn.benchmark = True
    columns = ["compiled", "2:4", "2:4 compiled"] if part == "compiled" else ["matrices", "2:4", "tuned"]
    print(header(columns), flush=True)
    for what, case in PARTS[part]:
        try:
            row = {"part": part, "what": what, **case()}
        except Exception as failure:
            row = {
                "part": part,
                "what": what,
                "layers": "–",
                "seconds": {},
                "called": {},
                "errors": {},
                "failed": {"all": sentence(failure)},
            }
        print(line(row, columns), flush=True)
        for name, why in row["failed"].items():
            print(f"  {what}, {name}: {why}", file=sys.stderr, flush=True)
        if json_file:
            with json_file.open("a") as file:
                file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--seconds", type=float, default=90, help="for everything; a part that takes longer is stopped")
    parser.add_argument("--json", type=Path, help="a line for each row is added to this file")
    parser.add_argument("--here", action="store_true", help="in this process")
    arguments = parser.parse_args()
    if unknown := [part for part in arguments.parts if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}; there are {', '.join(PARTS)}")
    if not torch.cuda.is_available():
        raise SystemExit("semi-structured kernels need an NVIDIA GPU, and torch sees none")
    parts = arguments.parts or list(PARTS)
    if arguments.here:
        for part in parts:
            run(part, arguments.json)
        return
    version = torch.backends.cusparselt.version() if hasattr(torch.backends, "cusparselt") else None
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuSPARSELt {version}", flush=True)
    end = time.monotonic() + arguments.seconds
    for part in parts:
        # a process for each: an error on the device ends everything in its own
        command = [sys.executable, __file__, part, "--here", *(["--json", str(arguments.json)] if arguments.json else [])]
        try:
            status = subprocess.run(command, timeout=max(end - time.monotonic(), 1), check=False).returncode
            if status:
                print(f"  {part} ended with status {status}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"  {part} was stopped: {arguments.seconds:g} s are over", flush=True)


if __name__ == "__main__":
    main()
