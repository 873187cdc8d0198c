"""Measure an epoch of iterative magnitude pruning in OpenLTH and in swamp: one network, one data set, one run, on one device.

    git clone https://github.com/facebookresearch/open_lth
    python benchmarks/peers.py open_lth --data DIR [--model cifar_resnet_20] [--trainings 1 4] [--examples 50000] [--workers 0 8]

DIR holds cifar-10-batches-py; OpenLTH needs torchvision. OpenLTH is started by its own command line, `open_lth.py lottery`, in a process
of its own, with its defaults for that model: float32, crops and flips by PIL in so many worker processes (its default is 0). Its time of an
epoch is the one that it prints itself, the fastest after the first, without evaluation. It is of 2020 and does not start with today's
torch and NumPy; `let_openlth_start` says what is changed. swamp trains OpenLTH's own module, imported from the clone, on the same images
with the same batches, augmentation and optimizer, in as many trainings at once as asked for (on a CPU in one); its time is that of the
fastest epoch after the first.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import nn

from swamp.drawing.tables import Table
from swamp.runs.bench import bench, measure_machine
from swamp.runs.config import build_config, resolve
from swamp.runs.opening import open_task
from swamp.tasks.models import MODELS
from swamp.terminal import print_table

NUM_IMAGES = 50_000
BATCH_SIZE = 128
NUM_EPOCHS = 4  # of OpenLTH. The first is not counted, and the last is not printed.
START_OPENLTH = (
    "import runpy, sys; from peers import let_openlth_start; let_openlth_start(); "
    "sys.path.insert(0, ''); runpy.run_path('open_lth.py', run_name='__main__')"
)


class Measured(NamedTuple):
    """Seconds of an epoch of one training."""

    what: str
    precision: str
    at_once: int  # trainings side by side
    seconds_each: float


def let_openlth_start() -> None:
    """Give NumPy back a function that it no longer has, and make a class that OpenLTH derives from one that it still can be derived from.

    OpenLTH calls `product` once a step, and uses the class for several GPUs only.
    """
    np.product = np.prod  # type: ignore[attr-defined]
    torch.nn.parallel.DistributedDataParallel = torch.nn.DataParallel  # type: ignore[assignment, misc]


def openlth_seconds(clone: Path, data: Path, model: str, num_examples: int, workers: int) -> float:
    """Return the seconds of OpenLTH's fastest epoch but the first, as it prints them."""
    with tempfile.TemporaryDirectory() as home:
        datasets = Path(home, "open_lth_datasets", "cifar10")
        datasets.mkdir(parents=True)
        (datasets / "cifar-10-batches-py").symlink_to((data / "cifar-10-batches-py").resolve())
        settings = [f"--default_hparams={model}", "--levels=0", f"--training_steps={NUM_EPOCHS}ep", f"--num_workers={workers}"]
        if num_examples < NUM_IMAGES:
            settings += [f"--subsample_fraction={num_examples / NUM_IMAGES}", "--transformation_seed=0"]
        command = [sys.executable, "-c", START_OPENLTH, "lottery", *settings, "--evaluate_only_at_end"]
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(command, cwd=clone, env={**os.environ, "HOME": home, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"OpenLTH ended with status {done.returncode}:\n{done.stderr}")
    times = {int(epoch): float(seconds) for epoch, seconds in re.findall(r"Ep (\d+)\tIt 0\tTime Elapsed ([\d.]+)", done.stdout)}
    return min(seconds for epoch, seconds in times.items() if epoch > 1)


def openlth_network(clone: Path, model: str) -> nn.Module:
    """Return OpenLTH's own module, with its initialisation."""
    if str(clone) not in sys.path:
        let_openlth_start()
        sys.path.insert(0, str(clone))
    from models import initializers, registry  # type: ignore[import-not-found, unused-ignore]

    (family,) = [one for one in registry.registered_models if one.is_valid_model_name(model)]
    network: nn.Module = family.get_model_from_name(model, initializers.kaiming_normal)
    return network


def swamp_seconds(arguments: argparse.Namespace, precision: str) -> list[Measured]:
    MODELS["of-openlth"] = lambda channels, classes: openlth_network(arguments.openlth, arguments.model)
    image = {"dataset": "cifar10", "data": str(arguments.data), "model": "of-openlth", "batch_size": BATCH_SIZE, "pad": 4, "flip": True}
    settings: dict[str, Any] = {
        "tasks": {"image": image},
        "device": arguments.device,
        "precision": precision,
        "optimizer.weight_decay": 1e-4,
    }
    if arguments.examples < NUM_IMAGES:
        settings["tasks.image.limit_examples"] = arguments.examples
    config = resolve(build_config("cifar10-wrn28-2", settings))
    assert open_task(config).num_examples == arguments.examples
    engine = "graphed" if arguments.device.startswith("cuda") else "sequential"  # Worker processes would not find the module.
    timings = bench(config, measure_machine(config), [(engine, {})], arguments.trainings)
    return [Measured("swamp", precision, timing.particles, timing.seconds_each) for timing in timings]


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("openlth", type=Path, help="a clone of OpenLTH")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="cifar_resnet_20")
    parser.add_argument("--trainings", type=int, nargs="+", default=[1, 4], help="trainings of swamp at once")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 8], help="OpenLTH's processes that load images")
    parser.add_argument("--examples", type=int, default=NUM_IMAGES)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    measured = []
    for workers in arguments.workers:
        seconds = openlth_seconds(arguments.openlth, arguments.data, arguments.model, arguments.examples, workers)
        measured.append(Measured(f"OpenLTH, {workers} workers", "float32", 1, seconds))
        print(*measured[-1], flush=True)
    for precision in ("float32", "bf16") if arguments.device.startswith("cuda") else ("float32",):
        for one in swamp_seconds(arguments, precision):
            measured.append(one)
            print(*one, flush=True)
    best = min(one.seconds_each for one in measured if one.what != "swamp")
    rows = [[m.what, m.precision, str(m.at_once), f"{m.seconds_each:.3f}", f"{best / m.seconds_each:.2f}"] for m in measured]
    device = torch.cuda.get_device_name(arguments.device) if arguments.device.startswith("cuda") else arguments.device
    header = ["program", "precision", "trainings at once", "s / epoch each", "OpenLTH's best / this"]
    print_table(Table(f"{arguments.model}, {arguments.examples:,} images", header, rows, f"{device}, torch {torch.__version__}"))
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode([one._asdict() for one in measured]))


if __name__ == "__main__":
    main()
