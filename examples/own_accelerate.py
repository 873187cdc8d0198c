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
out = sys.argv[1] if len(sys.argv) > 1 else "runs/own-accelerate"


def model():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train(model, run):
    accelerator, data = Accelerator(cpu=True), TensorDataset(images[:1200], labels[:1200])
    optimizer, loader = torch.optim.AdamW(model.parameters(), lr=3e-3), DataLoader(data, 64, shuffle=True)
    network, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(4):
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(F.cross_entropy(network(inputs), targets))
            optimizer.step()
        run.epoch_end(epoch)


def evaluate(model):
    return {"accuracy": (model(images[1200:]).argmax(1) == labels[1200:]).double().mean()}


print(found := swamp.prune_with(train, model, evaluate, method="swamp", out=out, device="cpu", pruning={"cycles": 2}))
