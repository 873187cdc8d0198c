from __future__ import annotations

from pathlib import Path

import pytest

from swamp.runs.config import build_config, config_hash, deciding_settings


def epochs(recipe: str, scale: object, **settings: object) -> tuple[int, int]:
    config = build_config(recipe, {"scale": scale, **settings})
    return config.ticket.epochs, config.cycle.epochs


def test_scale_shortens_all_trainings_together() -> None:
    assert epochs("cifar10-wrn28-2", 1) == (10, 150)
    assert epochs("cifar10-wrn28-2", 0.1) == (1, 15)
    assert epochs("imagenet-resnet50", 0.05) == (2, 3)  # 1.5 is rounded up
    assert epochs("cifar10-wrn28-2", 0.001) == (1, 1)  # what trains goes on training
    assert epochs("cifar10-wrn28-2", 0.1, **{"ticket.epochs": 0}) == (0, 15)
    assert epochs("cifar10-wrn28-2", 0.1, **{"cycle.epochs": 40}) == (1, 4)
    assert epochs("cifar10-wrn28-2", 2) == (20, 300)


def test_scale_shortens_warm_ups() -> None:
    assert build_config("cifar10-wrn28-2", {"scale": 0.1, "cycle.warmup": 5.0}).cycle.warmup == 0.5
    assert build_config("cifar10-wrn28-2", {"scale": 0.001, "ticket.warmup": 10.0}).ticket.warmup == 0.01


def test_scale_shortens_the_way_to_the_rate_of_swa() -> None:
    for scale, entry in ((0.1, "anneal:2"), (0.01, "anneal:1")):
        assert build_config("cifar10-wrn28-2", {"scale": scale, "swa.entry": "anneal:15"}).swa.entry == entry
    assert build_config("cifar10-wrn28-2", {"scale": 0.1, "swa.entry": "cosine-to"}).swa.entry == "cosine-to"


def test_scale_moves_the_epochs_from_which_on_images_are_larger() -> None:
    def sizes(scale: float) -> dict[str, int]:
        return build_config("imagenet-resnet50-fast", {"scale": scale}).selected("task").sizes  # type: ignore[no-any-return]

    assert sizes(1) == {"0": 128, "6": 192, "13": 224}
    assert sizes(0.5) == {"0": 128, "3": 192, "7": 224}
    assert sizes(0.05) == {"0": 192, "1": 224}  # The first two fall together.


def test_a_scaled_run_says_so_and_nothing_else_changes() -> None:
    whole, tenth = build_config("cifar10-wrn28-2"), build_config("cifar10-wrn28-2", {"scale": 0.1})
    assert tenth.recipe == "cifar10-wrn28-2-scale0.1"
    assert build_config("cifar10-wrn28-2", {"scale": 1}) == whole
    differing = {name for name, value in deciding_settings(whole).items() if deciding_settings(tenth)[name] != value}
    assert differing == {"ticket.epochs", "cycle.epochs"}


@pytest.mark.parametrize("scale", [0, -1, float("inf"), float("nan"), True, "0.1"])
def test_scale_must_be_a_positive_number(scale: object) -> None:
    with pytest.raises(ValueError, match=r"scale = .*: expected a number above 0, such as 0\.1"):
        epochs("digits", scale)


def test_the_data_folder_is_the_tasks_and_decides_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here, there = build_config("cifar10-vgg13", {"data": "sets"}), build_config("cifar10-vgg13", {"tasks.image.workers": 3})
    assert here.selected("task").data == str(tmp_path / "sets")
    assert config_hash(here) == config_hash(there)
    assert "tasks.image.batch_size" in deciding_settings(here)
    assert config_hash(here) != config_hash(build_config("cifar10-vgg13", {"tasks.image.batch_size": 64}))


def test_a_task_without_data_folder() -> None:
    with pytest.raises(ValueError, match="data = 'x': task 'custom' has no such setting"):
        build_config("digits", {"task": "custom", "data": "x"})
    with pytest.raises(ValueError, match="unknown task 'nothing'"):
        build_config("digits", {"task": "nothing", "data": "x"})
