"""`swamp methods`: list the methods, or explain one."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from swamp.commands import completion

group = "Prepare"
usage = "Usage: swamp methods [NAME]"


def methods(name: Annotated[str | None, Parameter(completer=completion.methods)] = None, /) -> None:
    """List the methods and presets with what they do, what they cost and where they come from; or explain one.

    Parameters
    ----------
    name
        The method or preset to explain.
    """
    from swamp.drawing.tables import Table
    from swamp.methods import find_method
    from swamp.methods import methods as all_methods
    from swamp.report.method_page import method_page
    from swamp.terminal import print_markdown, print_table

    if name:
        print_markdown(method_page(find_method(name)[0]))
        return
    rows = []
    for known, method in all_methods().items():
        rows.append([known, method.summary, method.cost, method.paper.partition(",")[0]])  # the authors and the year
        rows += [[preset.name, preset.summary, "", f"preset of {known}"] for preset in method.presets]
    note = (
        "cost: times that of IMP (N: the number of particles), or how many trainings of one cycle it takes\n"
        "swamp methods NAME explains one: its rule, its settings, its paper"
    )
    print_table(Table("Methods (swamp run RECIPE --method NAME)", ["name", "what it does", "cost", "paper"], rows, note))
