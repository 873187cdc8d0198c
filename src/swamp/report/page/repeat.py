"""The commands that make a run, and what was found beside it, again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

from swamp.runs.config import Config, build_config, deciding_settings
from swamp.runs.recipes import recipe_texts
from swamp.runs.setting_list import parse_setting
from swamp.runs.settings import text_of
from swamp.runs.stored import task_maker
from swamp.store.analysis_store import AnalysisStore


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


ANALYSES = ("hessian", "connectivity", "stability", "surface", "masks")  # those that the page shows
OPTIONS = ("examples", "tolerance", "grid")


def analysis_commands(directory: Path, cycles: Collection[int]) -> list[str]:
    """`swamp analyse …` for each analysis beside a run of these cycles, with the options that its result names."""
    commands = []
    for name in ANALYSES:
        try:
            found = AnalysisStore(directory).read_result(name)
        except (OSError, ValueError, RecursionError):
            continue  # which is said where it would be shown
        if not isinstance(found, dict):
            continue
        given = [f"--{option} {found[option]}" for option in OPTIONS if isinstance(found.get(option), int | float)]
        given += ["--split test"] if found.get("split") == "test" else []
        seen = cycles_in(found)
        given += [f"--cycles {','.join(map(str, seen))}"] if seen and set(seen) != set(cycles) else []
        commands.append(" ".join(["swamp analyse", shlex.quote(str(directory)), f"--{name}", *given]))
    return commands


def cycles_in(found: dict[str, Any]) -> list[int]:
    """The cycles that a result is of: those of its rows; of paths, whatever they lead from and to."""
    lists = [value if isinstance(value := found.get(key), list) else [] for key in ("rows", "paths")]
    rows, paths = ([one for one in value if isinstance(one, dict)] for value in lists)
    along = [int(text) for path in paths if path.get("kind") == "cycles" for text in re.findall(r"\d{1,9}", str(path.get("label")))]
    return sorted({*(row["cycle"] for row in rows if isinstance(row.get("cycle"), int)), *along})
