"""The command that makes a run again."""

from __future__ import annotations

import shlex
from pathlib import Path

from swamp.runs.config import Config, build_config, deciding_settings
from swamp.runs.recipes import recipe_texts
from swamp.runs.setting_list import parse_setting
from swamp.runs.settings import text_of
from swamp.runs.stored import task_maker


def command(config: Config, directory: Path) -> str:
    """`swamp run …` with the recipe and what differs from it. Where that would not give this very configuration, config.toml is given."""
    task = ["--task", maker] if (maker := task_maker(config)) else []
    settings = ["--seed", str(config.seed), "--precision", config.precision, *task, "--out", shlex.quote(f"{directory}-again")]
    changes = changes_from_recipe(config)
    if changes is None:
        return " ".join(["swamp run", shlex.quote(str(directory / "config.toml")), *task, *settings[-2:]])
    given = [part for name, text in changes.items() for part in (f"--{name}", shlex.quote(text))]
    return " ".join(["swamp run", config.recipe, "--method", config.method, *given, *settings])


def changes_from_recipe(config: Config) -> dict[str, str] | None:
    """What a built-in recipe with this method must be told to give the same numbers; None if that cannot be said on a command line."""
    if config.recipe not in recipe_texts():
        return None
    chosen = {"method": config.method, "seed": config.seed, "precision": config.precision}
    try:
        plain, mine = deciding_settings(build_config(config.recipe, chosen)), deciding_settings(config)
        changes = {name: text_of(value) for name, value in mine.items() if plain.get(name) != value}
        parsed = dict(parse_setting(name, text) for name, text in changes.items())
        again = deciding_settings(build_config(config.recipe, {**chosen, **parsed}))
    except ValueError:
        return None
    return changes if again == mine else None
