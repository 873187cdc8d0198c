"""Prune an LSTM on imbalanced classes, where accuracy says nothing and F1 does.

    python examples/lstm_imbalanced.py [--epochs 6] [--out runs/lstm-imbalanced]

The LSTM reads scikit-learn's handwritten digits row by row, eight pixels at a time, and must find the nines: one digit of ten. Who
always says "no nine" is right nine times of ten, with an F1 of zero.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import swamp


class RowReader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 48, batch_first=True), nn.Linear(48, 2)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.lstm(rows)[0][:, -1])


def f1(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """F1 of the nines, with precision and recall. The first number counts.

    A metric of outputs and targets is computed once, of all test examples. Written as `metric(model, batch)` it would be a mean over
    batches, which for F1 is another number.
    """
    found, wanted = outputs.argmax(1) == 1, targets == 1
    right, num_found, num_wanted = (float(each.sum()) for each in (found & wanted, found, wanted))
    # swamp tries a metric on two examples before it trains anything, and these may have no nine.
    return {
        "F1": 2 * right / max(num_found + num_wanted, 1.0),
        "precision": right / max(num_found, 1.0),
        "recall": right / max(num_wanted, 1.0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6, help="epochs of each cycle; more give better networks")
    parser.add_argument("--out", type=Path, default=Path("runs/lstm-imbalanced"))
    arguments = parser.parse_args()
    images, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).reshape(-1, 8, 8) / 16, torch.tensor(digits == 9).long()
    train, test = (x[:-360], y[:-360]), (x[-360:], y[-360:])

    found = swamp.prune(
        RowReader,
        train,
        test,
        loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0])),  # A missed nine costs three times as much as a false one.
        metric=f1,
        batch_size=64,
        prunable=["lstm.weight_*", "linear"],  # patterns of parameter names, and kinds of layers
        method="swamp",
        out=arguments.out,
        optimizer={"name": "adam", "weight_decay": 0.0},
        ticket={"epochs": 2, "learning_rate": 5e-3},
        cycle={"epochs": arguments.epochs, "learning_rate": 5e-3},
        swa={"learning_rate": 2.5e-3},
        pruning={"cycles": 4, "prune_fraction": 0.4},
        methods={"swamp": {"particles": 2}},
    )

    always_no = float((test[1] == 0).double().mean())
    print(f"\n(always saying no: accuracy {always_no:.1%}, F1 0.000)")
    print("sparsity  F1     precision  recall")
    for row in found.rows:
        print(f"{row.sparsity:8.1%}  {row.metrics['F1']:.3f}  {row.metrics['precision']:9.3f}  {row.metrics['recall']:6.3f}")
    print("\nshare of weights that each layer kept:")
    for name, density in found.rows[-1].densities.items():
        print(f"  {name:20} {density:.1%}")


if __name__ == "__main__":
    main()
