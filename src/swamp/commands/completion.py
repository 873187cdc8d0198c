"""The names that a shell completes beside commands and options: methods, engines, recipes, grids and figures.

A shell asks for them at every press of the Tab key. Importing methods would import torch, which takes a second or more, so that the files
of swamp are read as text here, and other distributions are asked for the names of their entry points alone.
"""

from __future__ import annotations

import re
from importlib import resources
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

STATED = re.compile(r'^name = "([^"]+)"|\bPreset\(\s*"([^"]+)"|^    "([^"]+)": Figure\(', re.MULTILINE)
OF_PYTHON_CODE = {"own-loop"}  # engines that no command takes


def stated_names(*packages: str) -> list[str]:
    """Return the names that the modules of some packages of swamp state, and those that other distributions register for them."""
    files = [file for package in packages for file in resources.files("swamp").joinpath(package).iterdir() if file.name.endswith(".py")]
    found = {name for file in files for match in STATED.findall(file.read_text("utf-8")) for name in match if name}
    registered = {point.name for package in packages for point in entry_points(group=f"swamp.{package}")}
    return sorted((found | registered) - OF_PYTHON_CODE)


def toml_names(folder: str) -> list[str]:
    """Return the names of the built-in recipes or grids of a folder."""
    files = resources.files("swamp.recipes").joinpath(folder).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def methods(_: CompletionContext) -> list[str]:
    return stated_names("methods")


def recipes(_: CompletionContext) -> list[str]:
    return toml_names("")


def ablations(_: CompletionContext) -> list[str]:
    return toml_names("ablations")


def targets(_: CompletionContext) -> list[str]:
    return toml_names("targets")


def figures(_: CompletionContext) -> list[str]:
    return stated_names("report/figures", "analyses")


def recipe_or_setting(context: CompletionContext) -> list[str]:
    """Return the values of a setting whose name stands before, or else the recipes."""
    return setting(context) if _before(context).startswith("--") else toml_names("")


def setting(context: CompletionContext) -> list[str]:
    """Return the values of a setting whose name stands before, where these are names."""
    if _before(context) == "--method":
        done, comma, _ = context.incomplete.rpartition(",")  # Several methods have commas between.
        return [f"{done}{comma}{name}" for name in stated_names("methods")]
    return ["auto", *stated_names("engines")] if _before(context) == "--engine" else []


def _before(context: CompletionContext) -> str:
    """Return the word before the one that is completed."""
    return context.argument.tokens[-1].value if context.argument.tokens else ""
