"""Learning rates that nobody names follow from the optimizer and the cycle's rate, and odd ones are named before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swamp.runs.config import Config, build_config
from swamp.runs.opening import RunRequest, prepare
from swamp.runs.rates import rate_remarks
from tests.support.cli import FLAGS, call
from tests.support.runs import QUICK


def rates(config: Config) -> tuple[float, float, float]:
    return config.cycle.learning_rate, config.ticket.learning_rate, config.swa.learning_rate


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (0.05, 0.05, 0.02)),
        ({"optimizer.name": "sgd"}, (0.05, 0.05, 0.02)),
        ({"optimizer.name": "adam"}, (1e-3, 1e-3, 5e-4)),
        ({"optimizer.name": "adamw"}, (1e-3, 1e-3, 5e-4)),
        ({"optimizer": {"name": "adamw"}, "cycle": {"learning_rate": 2e-4}}, (2e-4, 2e-4, 1e-4)),
        ({"cycle.learning_rate": 0.01}, (0.01, 0.01, 0.005)),
        ({"cycle.learning_rate": 0.01, "swa.learning_rate": 0.003}, (0.01, 0.01, 0.003)),
        ({"swa.learning_rate": 0.03}, (0.05, 0.05, 0.03)),
        ({"optimizer.name": "adamw", "ticket.learning_rate": 1e-4}, (1e-3, 1e-4, 5e-4)),
    ],
)
def test_a_task_of_ones_own_gets_rates_that_fit_its_optimizer(settings: dict[str, Any], expected: tuple[float, float, float]) -> None:
    assert rates(build_config("custom", settings)) == expected


def test_a_recipe_over_custom_follows_too_and_one_of_its_own_has_the_papers_share(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "custom"\n[optimizer]\nname = "adamw"\n')
    assert rates(build_config(str(tmp_path / "mine.toml"))) == (1e-3, 1e-3, 5e-4)
    (tmp_path / "bare.toml").write_text('base = ""\ntask = "custom"\n')
    assert rates(build_config(str(tmp_path / "bare.toml"))) == (0.1, 0.1, 0.05)


def test_rates_that_a_recipe_names_stay() -> None:
    assert rates(build_config("digits", {"optimizer.name": "adam"})) == (0.1, 0.1, 0.05)
    assert rates(build_config("digits", {"cycle.learning_rate": 0.01})) == (0.01, 0.1, 0.05)
    assert build_config("mrpc-minilm").swa.learning_rate == 0.05  # unused, and part of stored configurations


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"cycle.learning_rate": 0.01}, ["ticket.learning_rate = 0.1 is 10 times cycle.learning_rate = 0.01"]),
        ({"cycle.learning_rate": 0.02}, []),  # The ticket's rate is 5 times as large, and that of SWA 2.5 times.
        ({"swa.learning_rate": 0.6}, ["swa.learning_rate = 0.6 is 6 times cycle.learning_rate = 0.1"]),
        ({"swa.learning_rate": 1e-5}, ["swa.learning_rate = 1e-05 is 1/10000 of cycle.learning_rate = 0.1"]),
        ({"swa.learning_rate": 0.6, "swa.entry": "continue"}, []),
        ({"swa.learning_rate": 0.6, "method": "imp"}, []),  # IMP averages nothing.
        (
            {"optimizer.name": "adam", "ticket.learning_rate": 0.01, "swa.learning_rate": 0.01},
            ["cycle.learning_rate = 0.1 is large for adam"],
        ),
    ],
)
def test_odd_rates_are_named_before_training(settings: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    changes = {name: value for name, value in QUICK.items() if "method" not in settings or not name.startswith("methods.")}
    (run,) = prepare([RunRequest(build_config("digits", {**changes, **settings}), tmp_path / "run")])
    assert len(run.remarks) == len(expected)
    assert all(found.startswith(wanted) for found, wanted in zip(run.remarks, expected, strict=True))


@pytest.mark.parametrize("recipe", ["digits", "custom", "cifar10-wrn28-2", "imagenet-resnet50", "mrpc-roberta", "rte-minilm"])
def test_no_rate_of_a_built_in_recipe_is_odd(recipe: str) -> None:
    assert rate_remarks(build_config(recipe), averages=True, has_ticket=True) == []


def test_a_run_and_a_dry_run_say_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = [*FLAGS, "--swa.learning_rate", "0.7", "--out", str(tmp_path / "run")]
    for extra in (["--dry-run"], []):
        status, _, err = call(capsys, "run", *odd, *extra)
        assert status == 0
        assert err.count("swa.learning_rate = 0.7 is 7 times cycle.learning_rate = 0.1") == 1
        assert ("timing steps of digits on cpu" in err) == bool(extra)


def test_fp16_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="precision = 'fp16' is not offered: gradients in float16 need loss scaling"):
        build_config("digits", {"precision": "fp16"})
