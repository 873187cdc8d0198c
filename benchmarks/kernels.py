"""Measure the kernels of residual blocks on one GPU: the table of docs/kernels.md.

    python benchmarks/kernels.py passes [CHANNELS …]          each kernel of a block: bytes, their floor, time alone and side by side
    python benchmarks/kernels.py tiles [CHANNELS …]           the candidates among which the tiles of the kernels were chosen
    python benchmarks/kernels.py step [N …] [--model M] [--dst] [--top K]
                                                              seconds of an epoch, and where they go, by kernel, with N particles

The floor is the bytes over the bandwidth of a large copy. "alone" is one launch after the other; "of four" is the time of each when four
streams launch at once, as four particles do. Inputs rotate so that they do not all come from the cache. `step` also runs on earlier
versions of the package.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from engines import WORKLOADS, random_images
from torch import Tensor

from swamp.core.rules import DST
from swamp.drawing.tables import Table
from swamp.runs.bench import copy_bandwidth, job_maker_and_start, temporary_engine
from swamp.runs.config import build_config, resolve
from swamp.runs.opening import open_task
from swamp.tasks.datasets import image_sets
from swamp.tasks.task import dense_mask
from swamp.terminal import print_table

BATCH = 128
STAGES = [(32, 32), (64, 16), (128, 8)]  # channels and width of images in WRN-28-2
NUM_LAUNCHES, NUM_REPLAYS, NUM_SETS = 40, 8, 3
NUM_STEPS = 100

# Pixels, warps and pipeline stages. With one stage, loads go through the first-level cache, which keeps what neighbouring taps share.
TILES = {
    32: [
        *((256, 4, 3), (256, 8, 3), (128, 4, 3), (128, 4, 4), (128, 8, 3), (512, 8, 3)),
        *((256, 4, 1), (256, 8, 1), (128, 4, 1), (128, 8, 1), (64, 4, 1)),
    ],
    64: [(128, 8, 3), (128, 4, 3), (64, 4, 3), (256, 8, 3), (128, 8, 4), (64, 4, 4), (128, 8, 1), (128, 4, 1), (64, 4, 1)],
    128: [(128, 8, 3), (128, 8, 2), (64, 4, 3), (64, 8, 3), (64, 4, 4), (64, 8, 4), (64, 4, 1), (64, 8, 1)],
}
# See GradientSplit. None is the library.
SPLITS: dict[int, list[tuple[int, ...] | None]] = {
    32: [
        *((4, 4, 64, 4, 3, 132), (4, 4, 64, 8, 3, 132), (4, 4, 32, 4, 4, 132), (4, 4, 64, 4, 3, 264), (4, 4, 128, 8, 2, 132)),
        *((4, 4, 64, 4, 1, 132), (4, 4, 64, 8, 1, 132), (4, 4, 64, 8, 1, 264), (4, 4, 128, 8, 1, 132)),
        *((4, 4, 64, 4, 3, 66), (4, 4, 64, 8, 3, 66), (4, 4, 128, 8, 3, 66), (4, 4, 32, 4, 4, 88), (1, 4, 128, 4, 3, 66)),
    ],
    64: [
        *(
            (4, 1, 32, 4, 4, 32),
            (4, 1, 64, 8, 3, 32),
            (4, 1, 32, 8, 4, 44),
            (4, 1, 32, 4, 4, 64),
            (1, 4, 64, 8, 3, 32),
            (2, 2, 64, 8, 3, 33),
        ),
        *((4, 1, 64, 8, 1, 32), (4, 1, 64, 8, 1, 64)),
        *((4, 1, 64, 8, 3, 22), (4, 1, 64, 4, 3, 22), (4, 2, 32, 8, 4, 22), (4, 2, 64, 8, 3, 22), (4, 1, 64, 8, 3, 44)),
    ],
    128: [
        *(None, (1, 1, 64, 4, 3, 7), (1, 1, 64, 8, 3, 7), (1, 1, 64, 8, 3, 14), (1, 1, 128, 8, 2, 7), (1, 1, 64, 8, 4, 4)),
        *((2, 1, 32, 8, 3, 8), (1, 1, 64, 8, 1, 14)),
    ],
}

# Image rows and threads of halo.cu.
HALO_TILES = {32: [(8, 128), (8, 256), (4, 128), (4, 64), (16, 256)], 64: [(8, 128), (8, 256), (16, 256), (4, 64)], 128: []}


def microseconds(launch: Callable[[int], object], num_streams: int) -> float:
    """Return the time of each launch. `launch(k)` works on the k-th set of inputs."""
    streams, graphs = [torch.cuda.Stream() for _ in range(num_streams)], []
    for number, stream in enumerate(streams):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            launch(number * NUM_SETS)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for count in range(NUM_LAUNCHES):
                launch(number * NUM_SETS + count % NUM_SETS)
        graphs.append(graph)
    best = math.inf
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(NUM_REPLAYS):
            for stream, graph in zip(streams, graphs, strict=True):
                with torch.cuda.stream(stream):
                    graph.replay()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best / (NUM_REPLAYS * NUM_LAUNCHES * num_streams)


class Inputs(NamedTuple):
    """A set of tensors that kernels work on."""

    x: Tensor
    gradient: Tensor
    s: Tensor
    weight: Tensor
    norm: Any


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda").to(torch.bfloat16).contiguous(memory_format=torch.channels_last)


def input_sets(channels: int, width: int) -> list[Inputs]:
    from swamp.tasks.models.norm_relu_kernels import Norm

    def one() -> Inputs:
        mean, bias = torch.randn(2, channels, device="cuda")
        scale, weight = torch.rand(2, channels, device="cuda") + 0.5
        x, gradient, s = (drawn(BATCH, channels, width, width) for _ in range(3))
        return Inputs(x, gradient, s, drawn(channels, channels, 3, 3), Norm(mean, scale, weight, bias))

    return [one() for _ in range(4 * NUM_SETS)]


def passes(channels: int, width: int) -> Iterator[tuple[str, float, Callable[[int], object]]]:
    """Yield the kernels of a block with the tensors of an image batch that each moves."""
    from swamp.tasks.models import convolution_kernels as convolution
    from swamp.tasks.models import halo_kernels
    from swamp.tasks.models import norm_relu_kernels as norm

    sets, rows = input_sets(channels, width), BATCH * width * width
    layer = torch.nn.BatchNorm2d(channels).cuda()
    left = [convolution.convolved(i.x, i.weight, 1)[1] for i in sets]
    sums = [convolution.by_input(i.gradient, i.weight, 1, i.s, i.norm)[1] for i in sets]
    products = [convolution.by_weight(i.x, i.gradient, i.weight, 1) for i in sets]
    by_norm = [convolution.finished(s, i.norm, p) for s, i, p in zip(sums, sets, products, strict=True)]
    if halo_kernels.halo_tile(sets[0].x, channels):
        forward, backward, both = convolution.normed_convolved, convolution.by_input, convolution.by_norm_and_input
        after = [halo_kernels.NormGradient(i.x, i.norm, *gradients) for i, gradients in zip(sets, by_norm, strict=True)]
        yield "norm, relu, convolution, moments", 3, lambda k: forward(sets[k].s, sets[k].norm, sets[k].weight, 1)
        yield "norm, relu, convolution, sum, moments", 4, lambda k: forward(sets[k].s, sets[k].norm, sets[k].weight, 1, added=sets[k].x)
        yield "by input, relu, sums (halo)", 3, lambda k: backward(sets[k].gradient, sets[k].weight, 1, sets[k].s, sets[k].norm)
        yield (
            "norm backward, by input, relu, sums",
            5,
            lambda k: both(sets[k].gradient, after[k], sets[k].weight, 1, sets[k].s, sets[k].norm),
        )
    halo_kernels.HALO_TILES.clear()
    yield "convolution, moments", 2, lambda k: convolution.convolved(sets[k].x, sets[k].weight, 1)
    yield "convolution, sum, moments", 3, lambda k: convolution.convolved(sets[k].x, sets[k].weight, 1, added=sets[k].s)
    yield "finish moments", 0, lambda k: norm.batch_norm(layer, left[k], rows, sets[k].norm.weight, sets[k].norm.bias)
    yield "norm, relu", 2, lambda k: norm.normed_relu(sets[k].s, sets[k].norm)
    yield "by input, relu, sums", 3, lambda k: convolution.by_input(sets[k].gradient, sets[k].weight, 1, sets[k].s, sets[k].norm)
    yield "by weight", 2, lambda k: convolution.by_weight(sets[k].x, sets[k].gradient, sets[k].weight, 1)
    yield "finish sums, products", 0, lambda k: convolution.finished(sums[k], sets[k].norm, products[k])
    yield "norm backward", 3, lambda k: norm.by_sum(sets[k].gradient, sets[k].s, None, sets[k].norm, *by_norm[k], out=sets[k].gradient)
    yield (
        "norm backward, sum",
        4,
        lambda k: norm.by_sum(sets[k].gradient, sets[k].s, sets[k].x, sets[k].norm, *by_norm[k], out=sets[k].gradient),
    )


def measured(launch: Callable[[int], object]) -> list[str]:
    """Return the times alone and of four, or the error of a kernel that cannot be launched; others are measured nevertheless."""
    try:
        return [f"{microseconds(launch, streams):.2f}" for streams in (1, 4)]
    except Exception as error:
        return [type(error).__name__, str(error)[-160:].replace("\n", " ")]


def measure_passes(stages: list[tuple[int, int]]) -> None:
    bandwidth, table = copy_bandwidth(torch.device("cuda")), []
    for channels, width in stages:
        size = 2 * BATCH * width * width * channels
        for name, tensors, launch in passes(channels, width):
            floor = 1e6 * tensors * size / bandwidth
            table.append([f"{channels}", name, f"{tensors * size / 1e6:.1f}", f"{floor:.1f}", *measured(launch)])
            print(*table[-1], flush=True)
    print_table(Table("kernels", ["channels", "kernel", "MB", "floor µs", "alone µs", "of four µs"], table, ""))


def measure_tiles(stages: list[tuple[int, int]]) -> None:
    from swamp.tasks.models import convolution_kernels as convolution
    from swamp.tasks.models import halo_kernels
    from swamp.tasks.models.layers import Moments

    halo_kernels.HALO_TILES.clear()

    def tried(what: str, table: dict[Any, Any], key: Any, value: Any, launch: Callable[[int], object]) -> None:
        before = table.pop(key, None)
        if value is not None:
            table[key] = value
        convolution._tile.cache_clear()
        convolution._gradient_split.cache_clear()
        print(f"{what:9} {key!s:10} {tuple(value) if value else None!s:24}", *measured(launch), flush=True)
        table.pop(key, None)
        if before is not None:
            table[key] = before

    for channels, width in stages:
        sets = input_sets(channels, width)

        def forward(k: int, sets: list[Inputs] = sets) -> object:
            return convolution.convolved(sets[k].x, sets[k].weight, 1, added=sets[k].s)

        def backward(k: int, sets: list[Inputs] = sets) -> object:
            return convolution.by_input(sets[k].gradient, sets[k].weight, 1, sets[k].s, sets[k].norm)

        def by_weight(k: int, sets: list[Inputs] = sets) -> object:
            i = sets[k]
            sums = Moments(i.norm.mean.repeat(2), 1, 1)
            return convolution.finished(sums, i.norm, convolution.by_weight(i.x, i.gradient, i.weight, 1))

        for tile in TILES[channels]:
            tried("forward", convolution.FORWARD_TILES, channels, convolution.Tile(*tile), forward)
        for tile in TILES[channels]:
            tried("backward", convolution.BACKWARD_TILES, channels, convolution.Tile(*tile), backward)

        def normed_forward(k: int, sets: list[Inputs] = sets) -> object:
            return convolution.normed_convolved(sets[k].s, sets[k].norm, sets[k].weight, 1, added=sets[k].x)

        for rows, threads in [(0, 0), *HALO_TILES[channels]]:  # without a tile, the two kernels that it would replace
            halo = halo_kernels.HaloTile(rows, threads) if rows else None
            tried("halo forw", halo_kernels.HALO_TILES, (channels, channels), halo, normed_forward)
            tried("halo back", halo_kernels.HALO_TILES, (channels, channels), halo, backward)
        for split in SPLITS[channels]:
            given = None if split is None else convolution.GradientSplit(*split)
            tried("by weight", convolution.GRADIENT_SPLITS, channels, given, by_weight)


def measure_step(model: str, counts: list[int], dst: bool, top: int) -> None:
    workload = WORKLOADS[model]
    image_sets()["random"] = partial(random_images, workload, NUM_STEPS * workload.batch_size)
    image = {"dataset": "random", "model": model, "batch_size": workload.batch_size, "pad": 4, "flip": True}
    config = resolve(build_config("digits", {"tasks": {"image": image}, "device": "cuda", "precision": "bf16", "engine": "graphed"}))
    task = open_task(config)
    begin = time.perf_counter()
    with temporary_engine(config, task) as engine:
        maker, start = job_maker_and_start(config, engine)
        for count in counts:
            noises = maker.noise.split("particle", count)
            jobs = [maker.job(start, dense_mask(task), noise, rule=DST(alpha=1e-5) if dst else None) for noise in noises]
            engine.step_seconds(jobs)
            set_up = time.perf_counter() - begin
            each = min(engine.step_seconds(jobs) for _ in range(2)) / count
            epoch = each * math.ceil(workload.num_images / workload.batch_size)
            print(
                f"{model}, {count} particles: {epoch:.3f} s an epoch and particle, a step {1e6 * each:.0f} µs each, set-up {set_up:.0f} s",
                flush=True,
            )
            if top:
                print_kernels(partial(engine.step_seconds, jobs), 2 * NUM_STEPS * count, top)


def print_kernels(work: Callable[[], object], num_steps: int, top: int) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
    kernels = [event for event in profile.key_averages() if event.self_device_time_total]
    total = sum(event.self_device_time_total for event in kernels)
    print(f"{sum(event.count for event in kernels) / num_steps:.0f} kernels, {total / num_steps:.0f} µs of kernel time a step")
    for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:top]:
        time_each = event.self_device_time_total / num_steps
        print(f"{time_each:8.1f} µs {100 * time_each * num_steps / total:5.1f} % {event.count / num_steps:6.1f} × {event.key[:90]}")


def main(arguments: list[str]) -> None:
    what, *rest = arguments or ["passes"]
    values = {name: rest.pop(rest.index(name) + 1) for name in ("--top", "--model") if name in rest}
    numbers = [int(argument) for argument in rest if argument.isdigit()]
    stages = [stage for stage in STAGES if not numbers or stage[0] in numbers]
    if what == "passes":
        measure_passes(stages)
    elif what == "tiles":
        measure_tiles(stages)
    elif what == "step":
        measure_step(values.get("--model", "wrn28-2"), numbers or [1, 4], "--dst" in rest, int(values.get("--top", 0)))
    else:
        raise SystemExit(f"{what!r} is none of passes, tiles, step")


if __name__ == "__main__":
    main(sys.argv[1:])
