"""The built-in vision recipes say what the paper says."""

from __future__ import annotations

import pytest
from msgspec import structs

from swamp.runs.config import build_config
from swamp.runs.recipes import header_of, recipe_texts

# data set, model, weight decay, batch, ticket epochs and rate, cycle epochs, SWA rate, α, cycles, rewind
PAPER = {
    "cifar10-wrn28-2": ("cifar10", "wrn28-2", 1e-4, 128, 10, 0.1, 150, 0.05, 0.2, 13, "weights"),
    "cifar10-vgg13": ("cifar10", "vgg13", 1e-4, 128, 10, 0.1, 150, 0.05, 0.2, 13, "weights"),
    "cifar100-wrn32-4": ("cifar100", "wrn32-4", 1e-4, 128, 10, 0.1, 150, 0.05, 0.2, 13, "weights"),
    "cifar100-vgg16": ("cifar100", "vgg16", 1e-4, 128, 10, 0.1, 150, 0.05, 0.2, 13, "weights"),
    "tiny-imagenet-resnet18": ("tiny-imagenet", "resnet18", 5e-4, 256, 20, 0.1, 160, 0.05, 0.2, 13, "weights"),
    "imagenet-resnet50": ("imagenet", "resnet50", 1e-4, 2048, 30, 0.8, 60, 0.004, 0.5, 5, "lr"),
}


@pytest.mark.parametrize("name", PAPER)
def test_settings_of_the_paper(name: str) -> None:
    config = build_config(name)
    task = config.selected("task")
    assert config.recipe == name
    assert config.method == "swamp"
    assert PAPER[name] == (
        task.dataset,
        task.model,
        config.optimizer.weight_decay,
        task.batch_size,
        config.ticket.epochs,
        config.ticket.learning_rate,
        config.cycle.epochs,
        config.swa.learning_rate,
        float(config.pruning.prune_fraction),
        config.pruning.cycles,
        config.pruning.rewind,
    )
    assert config.cycle.learning_rate == config.ticket.learning_rate
    assert (config.ticket.shape, config.cycle.shape, config.swa.entry, config.swa.start) == ("constant", "cosine", "jump", 0.75)
    assert (config.optimizer.name, config.optimizer.momentum, config.optimizer.nesterov) == ("sgd", 0.9, False)
    assert task.flip
    assert task.pad == (0 if name.startswith("imagenet") else 4)
    assert task.prunable == ("conv",)


def test_particles() -> None:
    assert build_config("cifar100-vgg16").selected("method").particles == 4
    imagenet = build_config("imagenet-resnet50").selected("method")
    assert imagenet.particles == {"0": 1, "1": 8}
    assert imagenet.swa == {"0": False, "1": True}


def test_the_fast_recipe_averages_at_full_size() -> None:
    fast, paper = (build_config(name) for name in ("imagenet-resnet50-fast", "imagenet-resnet50"))
    task = fast.selected("task")
    assert (task.batch_size, task.crop_size, task.label_smoothing) == (1024, 224, 0.1)
    start = fast.swa.start_epoch(fast.cycle.epochs)
    assert max(map(int, task.sizes)) == start == 13
    assert task.sizes[str(start)] == task.crop_size
    assert fast.swa.learning_rate / fast.cycle.learning_rate == paper.swa.learning_rate / paper.cycle.learning_rate
    assert fast.ticket.learning_rate == fast.cycle.learning_rate
    assert fast.selected("method") == paper.selected("method")
    assert "747 epochs" in header_of("imagenet-resnet50-fast")
    assert fast.ticket.epochs + fast.cycle.epochs * (1 + 8 * fast.pruning.cycles) == 747


@pytest.mark.parametrize("name", [*PAPER, "fashion-mnist", "mrpc-roberta", "custom"])
@pytest.mark.parametrize("method", ["rigl", "rigl-swamp", "gradual", "dst"])
def test_what_suits_the_digits_stays_there(name: str, method: str) -> None:
    """An epoch of 16 steps asks for other intervals than the originals'."""
    config = build_config(name, {"method": method})
    original = config.method_module.Config()
    assert structs.replace(config.selected("method"), length=original.length) == original  # type: ignore[attr-defined]
    assert build_config("digits", {"method": method}).selected("method") != original


@pytest.mark.parametrize("name", [*PAPER, "fashion-mnist"])
def test_headers_have_description_command_and_cost(name: str) -> None:
    header = header_of(name)
    assert header.splitlines()[0].endswith(".")
    assert f"swamp run {name} --data DIR" in header
    assert "Cost: " in header
    assert "DIR holds" in header
    assert name in recipe_texts()


def test_any_method_by_name() -> None:
    assert build_config("imagenet-resnet50", {"method": "imp"}).selected("method") is not None
