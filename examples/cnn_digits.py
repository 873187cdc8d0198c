"""Prune your CNN, from dense to 95 % sparse, and keep a report and a small file.

    python examples/cnn_digits.py [--epochs 4] [--out runs/cnn-digits]

The data are 1,797 real handwritten digits of 8×8 pixels, which come with scikit-learn. Stop the script whenever you like (Ctrl-C, or pull
the plug) and start it again: it goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import swamp
from swamp.cli import main as swamp_command
from swamp.export.formats.sparse import encode


def cnn() -> nn.Module:
    """An ordinary CNN. swamp needs nothing special of it."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test data as plain pairs of tensors. The last 360 digits are kept for the test."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16 - 0.3, torch.tensor(labels)
    return (x[:-360], y[:-360]), (x[-360:], y[-360:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4, help="epochs of each cycle; more give better networks")
    parser.add_argument("--out", type=Path, default=Path("runs/cnn-digits"))
    arguments = parser.parse_args()
    train, test = digits()

    # Each of the five cycles removes 45 % of the weights that are left: 0.55⁵ = 5 % remain. Every cycle trains two copies ("particles") of
    # the network from the same early weights with the same mask, in different orders of the data, and averages them. The average decides
    # which weights go next. That is SWAMP; method="imp" is its classic relative with one copy.
    found = swamp.prune(
        cnn,
        train,
        test,
        batch_size=64,
        method="swamp",
        out=arguments.out,
        cycle={"epochs": arguments.epochs},
        pruning={"cycles": 5, "prune_fraction": 0.45},
        methods={"swamp": {"particles": 2}},
    )

    print("\nsparsity  weights left  accuracy on the test set")
    for row in found.rows:
        print(f"{row.sparsity:8.1%}  {row.num_survivors:12,}  {row.metrics['accuracy']:.1%}")

    # `found.model` is a module of your own class with zeros in it. This file keeps only the surviving weights and where they are …
    file = arguments.out / "cnn.swamp"
    file.write_bytes(encode(swamp.State.of(found.model), found.mask))
    dense = sum(tensor.numel() * tensor.element_size() for tensor in found.model.state_dict().values())
    print(f"\n{file}: {file.stat().st_size:,} bytes; the dense network has {dense:,}")

    # … and whoever has the code of the model loads it with one line.
    again = swamp.load_sparse(file, cnn()).model
    assert torch.equal(again(test[0]), found.model(test[0]))

    # One HTML page with curves, tables and settings, the same as the command `swamp report runs/cnn-digits`.
    swamp_command(["report", str(arguments.out), "--out", str(arguments.out / "report.html")])


if __name__ == "__main__":
    main()
