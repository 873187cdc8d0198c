from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from swamp.commands.arguments import recipe_and_settings
from swamp.commands.run import asked_runs, run
from swamp.report.page.sections.runs import run_command
from swamp.runs.config import Config, build_config, config_hash
from swamp.runs.opening import RunRequest, prepare
from swamp.runs.recipes import recipe_texts
from swamp.runs.stored import read_config


def asked(text: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """What `swamp run` understands."""
    swamp, name, *arguments = shlex.split(text)
    assert (swamp, name) == ("swamp", "run")
    assert arguments[-2] == "--out"
    recipe, settings = recipe_and_settings(arguments[:-2], run)
    (request,), _ = asked_runs(recipe, settings, [], Path(arguments[-1]))
    config, directory = request.config, request.directory
    assert directory == Path(arguments[-1])
    return config


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "swamp-plus", "seed": 4},
        {"method": "sms"},
        {"method": "lottery-pools"},
        {"cycle.epochs": 7, "pruning.prune_fraction": 0.3, "pruning.cycles": 3, "optimizer.nesterov": True, "notes": "'; rm -rf"},
        {"tasks.image.exclude": ["a b", "c"], "pruning.targets": [1, 2]},
    ],
)
def test_the_command_gives_the_same_numbers(settings: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    config = build_config("digits", {"precision": "float32", **settings})
    text = run_command(config, Path("runs/a b"))
    assert "config.toml" not in text
    assert config_hash(asked(text, monkeypatch)) == config_hash(config)


def test_every_recipe_has_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for recipe in set(recipe_texts()) - {"custom"}:
        config = build_config(recipe, {"precision": "bf16"})
        assert run_command(config, Path("x")).startswith(f"swamp run {recipe} --method")


def test_what_no_command_line_says_is_left_to_the_file(
    tmp_path: Path, quick: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = prepare([RunRequest(quick(methods__swamp__particles={"0": 1, "2": 3}), tmp_path / "run")])
    with run.begin():
        config = run.config
    text = run_command(config, tmp_path / "run")
    assert str(tmp_path / "run" / "config.toml") in text
    assert config_hash(asked(text, monkeypatch)) == config_hash(read_config(tmp_path / "run"))


def test_a_task_of_ones_own_is_named() -> None:
    mine = build_config("custom", {"task": "mine:task", "cycle.epochs": 3})
    assert "swamp run custom --method swamp --cycle.epochs 3 " in run_command(mine, Path("run"))
    assert " --task mine:task --out run-again" in run_command(mine, Path("run"))
    assert " --task MODULE:FUNCTION --out run-again" in run_command(build_config("custom"), Path("run"))
