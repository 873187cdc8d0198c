"""SWAMP around Lightning's Trainer: a callback tells the run when an epoch has ended."""

import sys

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import swamp
from swamp.adapters.lightning import RunCallback

digits = load_digits()
images, labels = torch.tensor(digits.images / 16).float().flatten(1), torch.tensor(digits.target)
data, (test_x, test_y) = TensorDataset(images[:1200], labels[:1200]), (images[1200:], labels[1200:])


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, _):
        return F.cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def train(model, run):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(max_epochs=4, accelerator="cpu", callbacks=[RunCallback(run)], **quiet).fit(model, DataLoader(data, 64, shuffle=True))


def score(model):
    return {"accuracy": (model.layers(test_x).argmax(1) == test_y).double().mean()}


out = sys.argv[1] if len(sys.argv) > 1 else "runs/own-lightning"
found = swamp.prune_with(train, Net, score, method="swamp", out=out, device="cpu", pruning={"cycles": 2, "prune_fraction": 0.5})
print([f"{row.sparsity:.0%} sparse: {row.metrics['accuracy']:.1%}" for row in found.rows])
