"""SWAMP around a script that uses Accelerate: its objects need no adapter."""

import sys

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import swamp

digits = load_digits()
images, labels = torch.tensor(digits.images / 16).float().flatten(1), torch.tensor(digits.target)
data, (test_x, test_y) = TensorDataset(images[:1200], labels[:1200]), (images[1200:], labels[1200:])


def model():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train(model, run):
    accelerator = Accelerator(cpu=True)
    loader, optimizer = DataLoader(data, 64, shuffle=True), torch.optim.AdamW(model.parameters(), lr=3e-3)
    network, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(4):
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(F.cross_entropy(network(inputs), targets))
            optimizer.step()
        if run.epoch_end(epoch):
            break


def score(model):
    return {"accuracy": (model(test_x).argmax(1) == test_y).double().mean()}


out = sys.argv[1] if len(sys.argv) > 1 else "runs/own-accelerate"
found = swamp.prune_with(train, model, score, method="swamp", out=out, device="cpu", pruning={"cycles": 2, "prune_fraction": 0.5})
print([f"{row.sparsity:.0%} sparse: {row.metrics['accuracy']:.1%}" for row in found.rows])
