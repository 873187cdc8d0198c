"""Cases of what people do with modules: reparametrised, lazy, tied and stateful ones, on rows of numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune as torch_prune
from torch.nn.utils.parametrizations import weight_norm

from tests.support.own_models.case import IMP, Case, accuracy, normal, squared_error
from tests.support.own_models.tables import mlp, rows


def with_weight_norm() -> nn.Module:
    return nn.Sequential(weight_norm(nn.Linear(5, 12)), nn.ReLU(), nn.Linear(12, 3))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(12), nn.ReLU(), nn.LazyLinear(3))


def already_pruned() -> nn.Module:
    model = mlp()
    torch_prune.l1_unstructured(model[0], "weight", 0.25)  # type: ignore[index, arg-type]
    return model


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3))


class DoubleStatistics(nn.Module):
    """Inputs are normalized by float64 numbers; one buffer is no part of the state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((5,), 0.1, dtype=torch.float64))
        self.register_buffer("scale", torch.full((5,), 1 / 3, dtype=torch.float64), persistent=False)
        self.body = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(((x.double() - self.mean) * self.scale).float())


class TiedAutoencoder(nn.Module):
    """Decodes by the transposed weight with which it encoded."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.bias = nn.Linear(5, 12), nn.Parameter(torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.encoder(x).relu(), self.encoder.weight.t(), self.bias)


CASES = (
    Case(
        "module",
        "a module, not a function that makes one, in a script that is started again",
        mlp,
        rows,
        accuracy,
        instance=True,
    ),
    Case("weight_norm", "`weight_norm` on one layer", with_weight_norm, rows, accuracy, IMP),
    Case("lazy", "lazy modules", lazy, rows, accuracy, IMP),
    Case(
        "already_pruned",
        "layers that `torch.nn.utils.prune` pruned",
        already_pruned,
        rows,
        accuracy,
        IMP,
    ),
    Case("dropout", "dropout", with_dropout, rows, accuracy),
    Case("double_buffers", "float64 buffers, one of them not in the state_dict", DoubleStatistics, rows, accuracy),
    Case(
        "tied_autoencoder",
        "autoencoder that uses a weight twice, once transposed",
        TiedAutoencoder,
        lambda: (normal(5), normal(5)),
        squared_error,
    ),
)
