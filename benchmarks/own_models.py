"""Measure what training a user's own model costs on one GPU: four particles side by side, beside a plain loop of one.

    python benchmarks/own_models.py [resnet18 gpt] [--particles 4] [--epochs 3] [--steps 200] [--json FILE]
    python benchmarks/own_models.py --tiny --device cpu     # a rehearsal of some seconds, which measures nothing of interest

A line is printed after every measurement: the seconds until the first epoch ended, which include compilation, and those of each epoch
after it. An epoch is limited to 200 steps of whole batches, so that there is one size of batch to compile for; `--steps 0` takes all.

"plain" is what a user would write: torch.compile(model), bf16 autocast, cuDNN's benchmark mode, the fused optimizer, images in
channels-last layout, and data that lie on the GPU already. "swamp" is `CustomTask` on the engine `graphed`, with the same model, loss,
optimizer and batches. Both are timed by the fastest of their epochs between the first and the last, in the same process: the first
compiles, and at the end of the last the trained networks are stored. Data are random: CIFAR-10's
sizes for the ResNet-18 (torchvision's, if it is installed, with a stem for small images), and for the GPT a text of 1.1 million characters.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import swamp
from swamp.core.noise import Noise
from swamp.drawing.tables import Table
from swamp.engines.engine import Progress
from swamp.runs.bench import trained_together
from swamp.runs.config import Config, resolve
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import build_engine, make_engine_context
from swamp.store.directory import Store
from swamp.tasks.task import dense_mask
from swamp.terminal import print_table
from swamp.training.step import channels_last, compiling


class Sizes(NamedTuple):
    """How large data and networks are."""

    num_examples: int
    batch_size: int
    width: int
    length: int = 0  # of the GPT's texts
    depth: int = 0  # of the GPT


class Workload(NamedTuple):
    """A model with its data, its loss and the settings of its optimizer."""

    model: Callable[[], nn.Module]
    data: Any
    loss: Callable[..., Tensor] | None
    batch_size: int
    settings: dict[str, Any]


class Seconds(NamedTuple):
    """How long one training took: up to the end of its first epoch, which compiles, and in each epoch after it but the last."""

    setup: float
    epochs: list[float]

    @property
    def best(self) -> float:
        return min(self.epochs)


class Measured(NamedTuple):
    """Seconds of one model: of one particle in a plain loop, and of several particles in swamp."""

    model: str
    parameters: int
    steps: int  # of an epoch
    particles: int
    plain: Seconds
    together: Seconds

    @property
    def each(self) -> float:
        return self.together.best / self.particles


SIZES = {
    False: {"resnet18": Sizes(50_000, 128, 64), "gpt": Sizes(8_714, 64, 256, 128, 6)},
    True: {"resnet18": Sizes(48, 16, 4), "gpt": Sizes(48, 16, 16, 12, 2)},
}
NUM_CHARACTERS = 65


# -- the models -----------------------------------------------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut, as in torchvision's ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.downsample = None if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


def resnet18(width: int) -> nn.Module:
    """ResNet-18 with a 3×3 stem and no pooling before the first block, for images of 32×32 pixels."""
    try:
        from torchvision.models import resnet18 as theirs  # type: ignore[import-not-found, unused-ignore]

        if width == 64:
            model: Any = theirs(num_classes=10)
            model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
            return model
    except ImportError:
        pass
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = [
        BasicBlock(inputs if first else outputs, outputs, stride if first else 1)
        for inputs, outputs, stride in zip(widths, widths[1:], (1, 2, 2, 2), strict=False)
        for first in (True, False)
    ]
    stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


class Block(nn.Module):
    """Causal attention with heads of 32 numbers, and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(width // 32, 1)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A GPT over characters with tied embeddings."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(NUM_CHARACTERS, sizes.width), nn.Parameter(torch.zeros(sizes.length, sizes.width))
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks, self.norm = nn.Sequential(*(Block(sizes.width) for _ in range(sizes.depth))), nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, NUM_CHARACTERS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(tokens) + self.positions)))


def next_character(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    tokens = batch["tokens"]
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def find_workload(name: str, tiny: bool, most_steps: int) -> Workload:
    sizes, draw = SIZES[tiny][name], torch.Generator().manual_seed(0)
    if most_steps:
        sizes = sizes._replace(num_examples=min(most_steps, sizes.num_examples // sizes.batch_size) * sizes.batch_size)
    if name == "resnet18":
        images = torch.randn(sizes.num_examples, 3, 32, 32, generator=draw)
        data: Any = images, torch.randint(10, (sizes.num_examples,), generator=draw)
        optimizer = {"name": "sgd", "momentum": 0.9, "weight_decay": 5e-4}
        return Workload(lambda: resnet18(sizes.width), data, None, sizes.batch_size, {"optimizer": optimizer, "cycle.learning_rate": 0.1})
    data = {"tokens": torch.randint(NUM_CHARACTERS, (sizes.num_examples, sizes.length + 1), generator=draw)}
    settings = {"optimizer": {"name": "adamw", "weight_decay": 0.01}, "cycle.learning_rate": 3e-4}
    return Workload(lambda: GPT(sizes), data, next_character, sizes.batch_size, settings)


# -- the measurements -----------------------------------------------------------------------------------------------------------------


def between(moments: list[float]) -> Seconds:
    """Return the seconds between the start of a training and the ends of its epochs but the last."""
    setup, *epochs, _ = (later - earlier for earlier, later in pairwise(moments))
    return Seconds(setup, epochs)


def plain_seconds(task: swamp.CustomTask, config: Config, num_epochs: int) -> Seconds:
    """Train one network in an ordinary loop."""
    moments = [time.perf_counter()]
    device, on_gpu = torch.device(config.device), config.device.startswith("cuda")
    model = task.model().to(device).train()
    if isinstance(task.examples["train"].data, tuple):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rate, decay = config.cycle.learning_rate, config.optimizer.weight_decay
    if config.optimizer.name == "sgd":
        optimizer: Any = torch.optim.SGD(model.parameters(), rate, config.optimizer.momentum, weight_decay=decay, fused=on_gpu)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=decay, fused=on_gpu)
    trained: Any = torch.compile(model) if on_gpu else model
    for epoch in range(num_epochs):
        plan = task.plan(Noise(0), epoch, device)
        for step in range(task.steps_per_epoch):
            batch = channels_last(task.batch(plan, step))
            with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
                loss = task.loss(trained, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        loss.item()  # It waits for the GPU.
        moments.append(time.perf_counter())
    return between(moments)


def swamp_seconds(task: swamp.CustomTask, config: Config, particles: int) -> Seconds:
    """Train several particles on swamp's engine."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        context = make_engine_context(config, task, store)
        start, maker = store.save_solution("start", task.init(Noise(0)), ()), JobMaker(config, task)
        jobs = [maker.job(start, dense_mask(task), noise) for noise in Noise(0).split("particle", particles)]
        times: dict[str, list[float]] = {job.key: [time.perf_counter()] for job in jobs}

        def report(progress: Progress) -> None:
            times[progress.key].append(time.perf_counter())

        with closing(build_engine(config, context)) as engine:
            for _ in engine.train(jobs, report):
                pass
    # Particles that the memory has no room for are trained in turn, so the times of such groups are added.
    groups = [[between(moments) for moments in group] for group in trained_together(times.values())]
    slowest = [
        Seconds(max(one.setup for one in group), [max(epoch) for epoch in zip(*(one.epochs for one in group), strict=True)])
        for group in groups
    ]
    return Seconds(slowest[0].setup, [sum(epoch) for epoch in zip(*(one.epochs for one in slowest), strict=True)])


def measure(name: str, arguments: argparse.Namespace) -> Measured:
    workload, on_gpu = find_workload(name, arguments.tiny, arguments.steps), arguments.device.startswith("cuda")
    run = {"device": arguments.device, "precision": "bf16" if on_gpu else "float32", "engine": "graphed" if on_gpu else "sequential"}
    settings = {**workload.settings, **run, "cycle.epochs": arguments.epochs, "checkpoint_seconds": 1e9}
    config = resolve(swamp.build_config("custom", settings))
    begin = time.perf_counter()
    task = swamp.CustomTask(workload.model, workload.data, workload.data, loss=workload.loss, batch_size=workload.batch_size)
    task.fingerprint  # It is computed once, from all data.  # noqa: B018
    say(f"{name}: data and task in {time.perf_counter() - begin:.1f} s; {task.steps_per_epoch} steps an epoch")
    with compiling(), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        plain = plain_seconds(task, config, arguments.epochs)
    say_seconds(f"{name}, plain", plain)
    together = swamp_seconds(task, config, arguments.particles)
    say_seconds(f"{name}, swamp with {arguments.particles} particles", together)
    return Measured(name, sum(p.numel() for p in task.model().parameters()), task.steps_per_epoch, arguments.particles, plain, together)


def say(line: str) -> None:
    print(line, flush=True)  # What was measured is kept if a limit of time ends the process.


def say_seconds(what: str, seconds: Seconds) -> None:
    say(f"{what}: first epoch with set-up {seconds.setup:.1f} s, then {', '.join(f'{epoch:.3f}' for epoch in seconds.epochs)} s an epoch")


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(SIZES[False]))
    parser.add_argument("--particles", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3, help="the first and the last are not counted, so there are three or more")
    parser.add_argument("--steps", type=int, default=200, help="the most steps of an epoch; 0: all examples, with a smaller last batch")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    if arguments.epochs < 3:
        parser.error(f"--epochs {arguments.epochs}: the first and the last epoch are not counted, so give 3 or more")
    measured = [measure(name, arguments) for name in arguments.models]
    rows = [
        [
            m.model,
            f"{m.parameters:,}",
            str(m.steps),
            f"{m.plain.best:.3f}",
            str(m.particles),
            f"{m.together.best:.3f}",
            f"{m.each:.3f}",
            f"{m.plain.best / m.each:.2f}",
        ]
        for m in measured
    ]
    header = ["model", "parameters", "steps", "plain, s / epoch", "particles", "swamp, s / epoch", "each", "plain / each"]
    device = torch.cuda.get_device_name(arguments.device) if arguments.device.startswith("cuda") else arguments.device
    print_table(Table("A user's own models", header, rows, f"{device}, torch {torch.__version__}"))
    if arguments.json:
        arguments.json.write_bytes(
            msgspec.json.encode([{**m._asdict(), "plain": m.plain._asdict(), "together": m.together._asdict()} for m in measured])
        )


if __name__ == "__main__":
    main()
