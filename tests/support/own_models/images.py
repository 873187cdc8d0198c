"""Cases over images: convolutions of all kinds, and a vision transformer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from tests.support.own_models.case import IMP, Case, accuracy, classes, normal, squared_error, whole_numbers


def labelled_images() -> tuple[Tensor, Tensor]:
    """Images that are the brighter, the higher their class."""
    return normal(1, 8, 8) + classes()[:, None, None, None], classes()


def cnn_batchnorm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def cnn_plain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


def depthwise() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 1),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 1, groups=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


class SharedBlocks(nn.Module):
    """A residual network whose block is used twice."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1))
        self.stem, self.blocks, self.head = nn.Conv2d(1, 6, 3, stride=2), nn.ModuleList([block, block]), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = (x + block(x)).relu()
        return self.head(x.mean((2, 3)))


def conv3d() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 4, 3), nn.BatchNorm3d(4), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 3))


def labelled_volumes() -> tuple[Tensor, Tensor]:
    return normal(1, 4, 5, 5) + classes()[:, None, None, None, None], classes()


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 4, 2, stride=2),
        nn.ReLU(),
        nn.Conv2d(4, 1, 3, padding=1),
    )


def images_to_reconstruct() -> tuple[Tensor, Tensor]:
    return normal(1, 8, 8), normal(1, 8, 8)


class UNet(nn.Module):
    """Two resolutions; what the upper one saw is concatenated on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.bottom = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 3, 1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        high = self.down(x).relu()
        low = self.norm(self.bottom(nn.functional.max_pool2d(high, 2))).relu()
        return self.out(torch.cat([self.up(low), high], 1))


def labelled_pixels() -> tuple[Tensor, Tensor]:
    return normal(1, 8, 8), whole_numbers(3, 8, 8)


class ViT(nn.Module):
    """Patches of 4×4 pixels, a class token, learnt positions and torch's own encoder."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.token, self.positions = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.randn(1, 5, width) / 4)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], 1)
        return self.head(self.encoder(tokens + self.positions)[:, 0])


def discriminator() -> nn.Module:
    return nn.Sequential(
        spectral_norm(nn.Conv2d(1, 6, 4, stride=2)), nn.LeakyReLU(0.2), nn.Flatten(), spectral_norm(nn.Linear(54, 8)), nn.Linear(8, 1)
    )


def real_or_made() -> tuple[Tensor, Tensor]:
    return normal(1, 8, 8), classes(2).float().unsqueeze(1)


def group_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.Conv2d(8, 4, 3), nn.LayerNorm([4, 4, 4]), nn.Flatten(), nn.Linear(64, 3)
    )


class FrozenNorm(nn.BatchNorm2d):
    """Keeps the statistics of a pretrained network, as in fine-tuning."""

    def train(self, mode: bool = True) -> FrozenNorm:
        return super().train(False)


def running_norms() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.InstanceNorm2d(6, track_running_stats=True), nn.ReLU(), FrozenNorm(6), nn.Flatten(), nn.Linear(216, 3)
    )
    model[3].running_mean.fill_(0.25)  # type: ignore[index, union-attr, operator]
    return model


def statistics_are_those_of_the_average(found: Any) -> None:
    """InstanceNorm has the means of the averaged weights' channels, and the frozen norm what it began with."""
    norm, frozen = found.model[1], found.model[3]
    hidden = found.model[0](labelled_images()[0]).detach()
    torch.testing.assert_close(norm.running_mean, hidden.mean((0, 2, 3)))
    torch.testing.assert_close(norm.running_var, hidden.var((2, 3)).mean(0))
    assert frozen.running_mean.tolist() == [0.25] * 6


def frozen_part() -> nn.Module:
    model = cnn_plain()
    model[0].requires_grad_(False)  # type: ignore[index]
    return model


def frozen_survivors_keep_their_values(found: Any) -> None:
    """A frozen layer is pruned as others are, and what survives is its init."""
    made, mask = found.model[0], found.mask.layers["0.weight"]
    assert not made.weight.requires_grad
    dense = found.rows[0].densities["0.weight"]
    assert dense == 1.0
    assert bool(made.weight[mask].ne(0).all())


ADAMW = {"optimizer": {"name": "adamw", "weight_decay": 0.01}, "cycle.learning_rate": 1e-3, "ticket.learning_rate": 1e-3}

CASES = (
    Case("cnn_batchnorm", "CNN with BatchNorm", cnn_batchnorm, labelled_images, accuracy),
    Case("cnn_plain", "CNN without norms", cnn_plain, labelled_images, accuracy),
    Case("depthwise", "depthwise and grouped convolutions", depthwise, labelled_images, accuracy),
    Case("shared_blocks", "residual network whose block is used twice", SharedBlocks, labelled_images, accuracy, IMP),
    Case("conv3d", "Conv3d on volumes", conv3d, labelled_volumes, accuracy),
    Case("autoencoder", "ConvTranspose autoencoder that reconstructs", autoencoder, images_to_reconstruct, squared_error, IMP),
    Case("unet", "U-Net, a label for each pixel", UNet, labelled_pixels, accuracy, IMP),
    Case(
        "vit",
        "ViT of `nn.TransformerEncoder`",
        ViT,
        labelled_images,
        accuracy,
        {**IMP, **ADAMW},
        pruned=("encoder.layers.0.self_attn.in_proj_weight", "encoder.layers.1.self_attn.out_proj.weight"),
    ),
    Case(
        "discriminator",
        "discriminator with `spectral_norm`",
        discriminator,
        real_or_made,
        squared_error,
        IMP,
        refused="0.weight has spectral_norm",
    ),
    Case("group_norm", "GroupNorm and LayerNorm", group_norm, labelled_images, accuracy),
    Case(
        "running_norms",
        "InstanceNorm with running statistics, BatchNorm frozen in evaluation mode",
        running_norms,
        labelled_images,
        accuracy,
        check=statistics_are_those_of_the_average,
    ),
    Case("frozen_part", "a frozen layer", frozen_part, labelled_images, accuracy, IMP, check=frozen_survivors_keep_their_values),
)
