"""Training loops as users write them, with the models and the examples that they are for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import swamp

X = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] * X[:, 1] > 0).long()
EPOCHS = 4


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


def with_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def evaluate(model: nn.Module) -> dict[str, Any]:
    return {"accuracy": (model(X).argmax(1) == Y).double().mean()}


def refresh(model: nn.Module) -> None:
    for part in X.split(40):  # The last part is smaller.
        model(part)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor) -> float:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(X[rows]), Y[rows])
    loss.backward()
    optimizer.step()
    return loss.item()


def loop(model: nn.Module, run: swamp.LoopTraining) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run.keep(optimizer=optimizer)
    for epoch in range(run.first_epoch, EPOCHS):
        losses = [step(model, optimizer, rows) for rows in torch.randperm(96).split(32)]
        if run.epoch_end(epoch, losses[-1]):
            break


def without_keep(model: nn.Module, run: swamp.LoopTraining) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        for rows in torch.randperm(96).split(32):
            step(model, optimizer, rows)
        run.epoch_end(epoch)


def without_epochs(model: nn.Module, run: swamp.LoopTraining) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in torch.randperm(96).split(32):
        step(model, optimizer, rows)


def prune(train: Callable[..., Any], out: Path, make: Callable[[], nn.Module] = plain, **options: Any) -> swamp.Pruned:
    chosen = {"method": "imp", "pruning": {"cycles": 2}, "device": "cpu", **options}
    found = swamp.prune_with(train, make, evaluate, out=out, quiet=True, **chosen)
    assert isinstance(found, swamp.Pruned)
    return found


def by_lightning(model: nn.Module, run: swamp.LoopTraining) -> None:
    import lightning
    from torch.utils.data import DataLoader, TensorDataset

    from swamp.adapters.lightning import LightningCallback

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inside = model

        def training_step(self, batch: Any, _: int) -> Tensor:
            return F.cross_entropy(self.inside(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)]

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    data = DataLoader(TensorDataset(X, Y), 32, shuffle=True)
    lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", callbacks=[LightningCallback(run)], **quiet).fit(Module(), data)
