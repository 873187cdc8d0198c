"""`swamp recipes`: list the recipes, or print one."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from swamp.commands import completion

group = "Prepare"
usage = "Usage: swamp recipes [NAME]"


def recipes(name: Annotated[str | None, Parameter(completer=completion.recipes)] = None, /) -> None:
    """List the recipes, or print one as TOML with all its settings and what they mean.

    Parameters
    ----------
    name
        The built-in recipe or TOML file to print.
    """
    from swamp.drawing.tables import Table
    from swamp.runs.config import build_config
    from swamp.runs.recipes import header_of, merge_all, read_chain, recipe_texts
    from swamp.runs.setting_list import to_toml
    from swamp.terminal import print_table

    if name:
        text = to_toml(build_config(name, trust=True), merge_all(read_chain(name).values()))  # Nothing is run here.
        print(header_of(name) + text, end="")
        return
    rows = [[recipe, text.splitlines()[0].lstrip("# ")] for recipe, text in recipe_texts().items()]
    print_table(Table("Recipes (swamp run NAME)", ["name", "what it is"], rows))
