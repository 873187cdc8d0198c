"""Counts against the published ones; SPEC's table in full."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from swamp.core.cost import macs_per_weight
from swamp.core.noise import Noise
from swamp.tasks.models import MODELS, find_model
from swamp.tasks.prunable import prunable_weights
from swamp.tasks.task import seeded_state

# name, classes, side of the image: convolution weights, parameters, forward multiply-adds
COUNTS = {
    ("wrn28-2", 10, 32): (1_462_704, 1_467_610, 214_353_152),
    ("wrn32-4", 100, 32): (7_387_568, 7_422_260, 1_072_112_640),
    ("vgg13", 10, 32): (9_402_048, 9_413_066, 228_267_008),
    ("vgg16", 100, 32): (14_710_464, 14_770_212, 313_247_744),
    ("resnet18", 200, 64): (11_159_232, 11_271_432, 2_221_772_800),
    ("resnet18-imagenet", 1000, 224): (11_166_912, 11_689_512, 1_814_073_344),
    ("resnet50", 1000, 224): (23_454_912, 25_557_032, 4_089_184_256),
}


def macs_of(model: nn.Module, size: int) -> dict[str, int]:
    # shapes are all that counts, so nothing has to be computed
    return macs_per_weight(model.to("meta"), lambda m: m(torch.zeros(1, 3, size, size, device="meta")))


@pytest.mark.parametrize(("name", "classes", "size"), COUNTS)
def test_counts(name: str, classes: int, size: int) -> None:
    model = find_model(name)(3, classes)
    weights = sum(math.prod(shape) for shape in prunable_weights(model, ["conv"]).values())
    parameters = sum(p.numel() for p in model.parameters())
    assert (weights, parameters, sum(macs_of(model, size).values())) == COUNTS[name, classes, size]


def test_every_model_has_counts() -> None:
    assert {name for name, _, _ in COUNTS} | {"resnet-digits"} == set(MODELS)


def test_resnet50_stage_by_stage() -> None:
    """He et al. 2016a, table 1, with the stride in the 3×3 convolutions."""
    model = find_model("resnet50")(3, 1000)
    counts = macs_of(model, 224)
    stages = [sum(count for name, count in counts.items() if name.startswith(f"stages.{stage}.")) for stage in range(4)]
    assert counts["stem.0.weight"] == 7 * 7 * 3 * 64 * 112 * 112
    assert counts["classifier.weight"] == 2048 * 1000
    assert stages == [667_942_912, 1_027_604_480, 1_464_336_384, 809_238_528]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_init_is_kaiming_normal_over_the_outputs(name: str) -> None:
    state = seeded_state(lambda: find_model(name)(3, 10), Noise(0))
    for weight in (p for p in state.parameters.values() if p.dim() == 4):
        std = math.sqrt(2 / (weight.shape[0] * weight.shape[2] * weight.shape[3]))
        if weight.numel() > 2000:
            assert float(weight.std()) == pytest.approx(std, rel=0.1)
        assert abs(float(weight.mean())) < 5 * std / math.sqrt(weight.numel())
    assert not any(name.endswith("bias") and p.any() for name, p in state.parameters.items() if "classifier" not in name)


@pytest.mark.parametrize(("name", "size"), [("vgg13", 32), ("vgg16", 28), ("wrn16-1", 28), ("resnet18", 32), ("resnet18-imagenet", 64)])
def test_outputs(name: str, size: int) -> None:
    model = find_model(name)(1, 7).eval()
    assert model(torch.randn(2, 1, size, size)).shape == (2, 7)


def test_wide_residual_networks_of_any_size() -> None:
    assert sum(p.numel() for p in find_model("wrn28-10")(3, 10).to("meta").parameters()) == 36_479_194
    with pytest.raises(ValueError, match=r"model 'wrn29-2': there are depths 6n\+2 and 6n\+4"):
        find_model("wrn29-2")
    with pytest.raises(ValueError, match=r"unknown model 'vgg19'; did you mean 'vgg16'.* or any other wrnDEPTH-WIDTH"):
        find_model("vgg19")
