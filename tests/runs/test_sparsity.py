"""A target sparsity in place of a number of cycles."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swamp.core.pruning import Pruning, rounded_share
from swamp.runs.config import Config, build_config, complete, config_hash
from swamp.runs.setting_list import to_toml
from tests.support.cli import call
from tests.support.runs import QUICK, iterate

SETTINGS = {name: value for name, value in QUICK.items() if name not in ("pruning.cycles", "methods.swamp.particles")}
NUM_WEIGHTS = 4808  # of the network in SETTINGS


def config_with(**settings: Any) -> Config:
    return build_config("digits", {**SETTINGS, "method": "imp", **{name.replace("__", "."): value for name, value in settings.items()}})


@given(st.integers(1, 99), st.integers(1, 999))
def test_cycles_go_on_until_past_the_target_and_the_last_keeps_exactly_the_target(percent: int, thousandths: int) -> None:
    fraction, sparsity = percent / 100, thousandths / 1000
    pruning, plain = Pruning(prune_fraction=fraction, sparsity=sparsity), Pruning(prune_fraction=fraction)
    last = pruning.cycles
    assert pruning.density(last) == Fraction(1000 - thousandths, 1000) >= plain.density(last)
    assert [pruning.density(cycle) for cycle in range(last)] == [plain.density(cycle) for cycle in range(last)]
    assert last == 0 or plain.density(last - 1) > pruning.density(last)
    assert pruning.target_cycles[-1] == last  # Methods that prune only once end there too.


def test_a_power_of_the_fraction_needs_no_further_cycle() -> None:
    assert Pruning(prune_fraction=0.5, sparsity=0.875).cycles == 3
    assert Pruning(prune_fraction=0.2, sparsity=0.9).cycles == 11  # 0.8^10 = 0.107
    assert Pruning().density(13) == Fraction(4, 5) ** 13


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sparsity": 90}, "pruning.sparsity = 90: expected a share of the weights below 1, such as 0.9 for 90 %"),
        ({"sparsity": 1}, "such as 0.9 for 90 %"),
        ({"sparsity": 100}, "such as 0.9 for 90 %"),
        ({"sparsity": -0.1}, "pruning.sparsity = -0.1: expected a number >= 0"),
        ({"sparsity": "0.9"}, "pruning.sparsity = '0.9': expected a number"),
        ({"sparsity": 0.999, "pruning.prune_fraction": 0.001}, "takes 6905 cycles .* at most 1000"),
        (
            {"sparsity": 0.9, "pruning.cycles": 7},
            "pruning.cycles = 7 beside pruning.sparsity = 0.9, which takes 4 cycles .* give one of the two",
        ),
        ({"sparsity": 0.9, "pruning": {"sparsity": 0.8}}, "pruning.sparsity is set twice: 0.8 and 0.9"),
        ({"sparsity": 0.9, "pruning.sparsity": 0.8}, "pruning.sparsity is set twice: 0.8 and 0.9"),
        ({"sparsity": 0.5, "pruning.targets": [3]}, "pruning.targets names cycle 3, but pruning.cycles = 1"),
    ],
)
def test_mistakes(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_config("digits", settings)


def test_the_layer_on_top_decides_between_cycles_and_sparsity(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[pruning]\nsparsity = 0.9\n")
    recipe = str(tmp_path / "mine.toml")
    assert build_config(recipe).pruning.cycles == 4  # although the base has 5 cycles
    assert build_config(recipe, {"pruning.prune_fraction": 0.2}).pruning.cycles == 11
    changed = build_config(recipe, {"pruning.cycles": 6}).pruning
    assert (changed.cycles, changed.sparsity) == (6, 0)


def test_a_complete_configuration_is_a_recipe_again(tmp_path: Path) -> None:
    config = config_with(sparsity=0.9)
    (tmp_path / "again.toml").write_text(to_toml(config))
    again = build_config(str(tmp_path / "again.toml"))
    assert (again.pruning, config_hash(again)) == (config.pruning, config_hash(config))
    (tmp_path / "plain.toml").write_text(to_toml(build_config("digits")))
    assert build_config(str(tmp_path / "plain.toml"), {"sparsity": 0.9}).pruning == Pruning(prune_fraction=0.5, sparsity=0.9)


def test_headers_of_before_have_no_sparsity() -> None:
    assert complete({"pruning": {"cycles": 5, "prune_fraction": 0.5}}).pruning == build_config("digits").pruning


@pytest.mark.parametrize("method", ["imp", "magnitude", "gradual", "snip"])
def test_the_last_row_has_exactly_the_target(method: str, tmp_path: Path) -> None:
    rows = list(iterate(config_with(sparsity=0.7, method=method, cycle__epochs=1), tmp_path))
    assert rows[-1].num_survivors == rounded_share(NUM_WEIGHTS, Fraction(3, 10)) == 1442
    assert rows[-1].cycle == 2


@pytest.mark.parametrize(("pattern", "sparsity", "group"), [("2:4", 0.4, 3), ("channel", 0.6, 200), ("block:4x1", 0.6, 4)])
def test_patterns_reach_the_target_but_for_one_group(pattern: str, sparsity: float, group: int, tmp_path: Path) -> None:
    row = list(iterate(config_with(sparsity=sparsity, cycle__epochs=1, pruning__pattern=pattern), tmp_path))[-1]
    wanted = rounded_share(NUM_WEIGHTS, 1 - Fraction(str(sparsity)))
    assert wanted - group < row.num_survivors <= wanted


def test_a_pattern_that_cannot_be_so_sparse_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = [f"--{name}={value}" for name, value in SETTINGS.items()]
    status, _, error = call(capsys, "run", *flags, "--sparsity", "0.9", "--pruning.pattern", "2:4", "--out", tmp_path / "run")
    assert status == 2
    assert "leaves at least" in error
    assert "lower pruning.sparsity = 0.9" in error
    status, out, _ = call(capsys, "run", *flags, "--sparsity", "0.9", "--method", "imp", "--dry-run", "--out", tmp_path / "run")
    assert status == 0
    assert " 481 " in out  # a tenth of 4808
