"""Recipes: built-in ones are found by name, files by path. Each is layered over its base."""

from __future__ import annotations

import functools
import itertools
import math
import tomllib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Any

from swamp.core.errors import brief, nearest
from swamp.core.pruning import Pruning
from swamp.runs.settings import convert

TomlTable = dict[str, Any]  # settings as TOML gives them, nested
DEFAULT_RECIPE = "digits"
MOST_NESTED = 20  # tables and lists in one another; settings have three
# The settings that select something by name, and the tables that hold the settings of what can be selected.
SELECTORS = {"task": "tasks", "method": "methods", "engine": "engines"}


def recipe_texts(folder: str = "") -> dict[str, str]:
    """Return the texts of the built-in recipes by name, or those of the grids in the folder `ablations` or `targets`."""
    files = resources.files("swamp.recipes") / folder
    return {
        name: (files / f"{name}.toml").read_text(encoding="utf-8")
        for name in sorted(path.name.removesuffix(".toml") for path in files.iterdir() if path.name.endswith(".toml"))
    }


def parse_toml(what: str, source: str | Path) -> TomlTable:
    """Return the content of a TOML text or file. Errors begin with `what` it is."""
    too_deep = f"{what} nests tables and lists more than {MOST_NESTED} deep"
    try:
        text = source if isinstance(source, str) else source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{what} cannot be read: {error}") from None
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{what} is not valid TOML: {error}") from None
    except RecursionError:
        raise ValueError(too_deep) from None
    except ValueError:  # Python reads integers of at most 4300 digits.
        raise ValueError(f"{what} has a number of thousands of digits") from None
    level: list[Any] = [found]
    for _ in range(MOST_NESTED):
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one) if isinstance(item, dict | list)]
    if level:
        raise ValueError(too_deep)
    return found


def header_of(recipe: str) -> str:
    """Return the comment that a recipe opens with: command, cost, expected result."""
    text = recipe_texts().get(recipe) or Path(recipe).read_text(encoding="utf-8")
    return "".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))


def read_chain(recipe: str, above: tuple[str, ...] = ()) -> dict[str, TomlTable]:
    """Read a recipe and the recipes that it is based on. Return their settings by name or path, those of the lowest base first."""
    texts, path = recipe_texts(), Path(recipe)
    if recipe not in texts and not path.is_file():
        there = "this is no regular file" if path.exists() else "no such file"
        kind = there if path.suffix == ".toml" else f"neither a built-in recipe nor a TOML file; {nearest(recipe, texts)}"
        raise ValueError(f"recipe {recipe!r}: {kind}")
    place = recipe if recipe in texts else str(path.resolve())  # Relative paths may name one file in many ways.
    if place in above:
        raise ValueError(f"recipes are based on each other in a circle: {' -> '.join([*above, place])}")
    settings = parse_toml(f"recipe {recipe!r}", texts.get(recipe, path))
    base = settings.pop("base", None if recipe == DEFAULT_RECIPE else DEFAULT_RECIPE)
    if base is not None and not isinstance(base, str):
        raise ValueError(f"recipe {recipe!r}: base = {base!r} is not the name of a recipe")
    # A base that is a relative path is relative to the recipe's own folder.
    if base and base not in texts and recipe not in texts:
        base = str(path.parent / base)
    below = read_chain(base, (*above, place)) if base else {}
    return {**below, recipe: {**settings, "recipe": recipe if recipe in texts else path.stem}}


def merge_all(layers: Iterable[TomlTable]) -> TomlTable:
    """Lay each layer over those before it."""
    return functools.reduce(merge, layers, {})


def merge(below: TomlTable, above: TomlTable) -> TomlTable:
    """Lay settings over settings: tables are merged, those of tasks, methods and engines one level deeper, and values are replaced."""
    result = dict(below)
    for key, value in above.items():
        depth = 2 if key in SELECTORS.values() else 1
        result[key] = _merge_tables(below.get(key), value, depth)
    return result


def _merge_tables(below: Any, above: Any, depth: int) -> Any:
    if not depth or not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _merge_tables(below.get(key), value, depth - 1) for key, value in above.items()}}


def layered(layers: Iterable[TomlTable]) -> list[TomlTable]:
    """Return the layers, where pruning.cycles takes the place of a pruning.sparsity below it. One layer says one of the two.

    A complete configuration, such as the config.toml of a run, has both, and its cycles are those that follow from its sparsity.
    """
    result: list[TomlTable] = []
    for layer in layers:
        given = pruning if isinstance(pruning := layer.get("pruning"), dict) else {}
        if "cycles" in given and "sparsity" not in given:
            layer = merge(layer, {"pruning": {"sparsity": 0.0}})
        result.append(layer)
        if "cycles" in given and given.get("sparsity"):
            found = convert(merge_all(result)["pruning"], Pruning, "pruning")
            if found.cycles != given["cycles"]:
                raise ValueError(
                    f"pruning.cycles = {brief(given['cycles'])} beside pruning.sparsity = {found.sparsity}, which takes {found.cycles} "
                    f"cycles at pruning.prune_fraction = {found.prune_fraction}: give one of the two"
                )
    return result


def nested(settings: Mapping[str, Any]) -> TomlTable:
    """Return settings with dotted names as nested tables.

    >>> nested({"cycle.epochs": 2, "cycle": {"learning_rate": 0.1}})
    {'cycle': {'epochs': 2, 'learning_rate': 0.1}}
    """
    result: TomlTable = {}
    for name, value in settings.items():
        for part in reversed(str(name).split(".")):
            value = {part: value}
        result = _together(result, value, "")
    return result


def _together(one: TomlTable, other: TomlTable, path: str) -> TomlTable:
    """Join tables that must not set the same thing."""
    result = dict(one)
    for key, value in other.items():
        name = f"{path}{key}"
        if key not in result:
            result[key] = dict(value) if isinstance(value, dict) else value
        elif isinstance(result[key], dict) and isinstance(value, dict):
            result[key] = _together(result[key], value, f"{name}.")
        else:
            raise ValueError(f"{name} is set twice: {result[key]!r} and {value!r}")
    return result


def scaled(settings: TomlTable, scale: Any) -> TomlTable:
    """Multiply the epochs of a complete configuration by `scale`: of ticket and cycle, of warm-ups, and of the way to SWA's learning rate.

    Counts are rounded to the nearest whole number, halves up, and never to none. The recipe's name tells such runs from whole ones.
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < math.inf:
        raise ValueError(f"scale = {scale!r}: expected a number above 0, such as 0.1")
    factor = Fraction(str(scale))
    result: TomlTable = merge(settings, {"recipe": f"{settings['recipe']}-scale{scale:g}"} if scale != 1 else {})
    for name in ("ticket", "cycle"):
        result[name] = _scaled_schedule(result[name], factor)
    entry, _, epochs = result["swa"]["entry"].partition(":")
    if epochs:  # anneal:K
        result = merge(result, {"swa": {"entry": f"{entry}:{_times(int(epochs), factor)}"}})
    result["tasks"] = {name: _scaled_sizes(table, factor) for name, table in result["tasks"].items()}
    return result


def shortest(settings: TomlTable) -> TomlTable:
    """Return a complete configuration with one epoch of each training and one pruning. The recipe's name tells such runs from others.

    A target sparsity is kept: the only pruning goes all the way to it.
    """
    result: TomlTable = merge(settings, {"recipe": f"{settings['recipe']}-fast"})
    for name in ("ticket", "cycle"):
        result[name] = {**result[name], "epochs": min(result[name]["epochs"], 1), "warmup": 0.0}
    pruning = {"cycles": min(result["pruning"]["cycles"], 1), "targets": []}
    if sparsity := result["pruning"]["sparsity"]:
        pruning["prune_fraction"] = sparsity
    return merge(result, {"pruning": pruning})


def _scaled_sizes(table: TomlTable, factor: Fraction) -> TomlTable:
    """Multiply the epochs from which on images have another size. Of several that fall together, the last one counts."""
    if not (sizes := table.get("sizes")):
        return table
    return {**table, "sizes": {str(math.floor(int(first) * factor + Fraction(1, 2))): sizes[first] for first in sorted(sizes, key=int)}}


def _scaled_schedule(schedule: TomlTable, factor: Fraction) -> TomlTable:
    epochs, warmup = _times(schedule["epochs"], factor), float(Fraction(str(schedule["warmup"])) * factor)
    return {**schedule, "epochs": epochs, "warmup": min(warmup, float(epochs))}


def _times(epochs: int, factor: Fraction) -> int:
    """
    >>> [_times(epochs, Fraction("0.1")) for epochs in (150, 160, 25, 10, 2, 0)]
    [15, 16, 3, 1, 1, 0]
    """
    return max(math.floor(epochs * factor + Fraction(1, 2)), 1 if epochs else 0)
