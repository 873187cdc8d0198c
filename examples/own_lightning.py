"""SWAMP around Lightning's Trainer: a callback tells the run when an epoch has ended."""

import sys

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import swamp
from swamp.adapters.lightning import LightningCallback

digits = load_digits()
images, labels = torch.tensor(digits.images / 16).float().flatten(1), torch.tensor(digits.target)
out = sys.argv[1] if len(sys.argv) > 1 else "runs/own-lightning"


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)

    def evaluate(self):
        return {"accuracy": (self.layers(images[1200:]).argmax(1) == labels[1200:]).double().mean()}


def train(model, run):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    data = DataLoader(TensorDataset(images[:1200], labels[:1200]), 64, shuffle=True)
    lightning.Trainer(max_epochs=4, accelerator="cpu", callbacks=[LightningCallback(run)], **quiet).fit(model, data)


print(found := swamp.prune_with(train, Net, Net.evaluate, method="swamp", out=out, device="cpu", pruning={"cycles": 2}))
