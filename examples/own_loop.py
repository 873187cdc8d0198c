"""SWAMP around a training loop that exists already: `run.epoch_end` is all that was added to it."""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import swamp

digits = load_digits()
images, labels = torch.tensor(digits.images / 16).float().flatten(1), torch.tensor(digits.target)
(train_x, test_x), (train_y, test_y) = images.split(1200), labels.split(1200)


def model():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train(model, run):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    run.keep(optimizer=optimizer)  # optional: a training that was killed goes on in its middle
    for epoch in range(run.first_epoch, 4):
        for rows in torch.randperm(1200).split(64):  # torch is seeded with run.seed
            optimizer.zero_grad()
            F.cross_entropy(model(train_x[rows]), train_y[rows]).backward()
            optimizer.step()
        if run.epoch_end(epoch):
            break


def evaluate(model):
    return {"accuracy": (model(test_x).argmax(1) == test_y).double().mean()}


out = sys.argv[1] if len(sys.argv) > 1 else "runs/own-loop"
print(found := swamp.prune_with(train, model, evaluate, method="swamp", out=out, pruning={"cycles": 3, "prune_fraction": 0.5}))
