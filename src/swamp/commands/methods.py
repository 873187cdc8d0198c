"""`swamp methods`: list the methods, or explain one."""

from __future__ import annotations

usage = "Usage: swamp methods [NAME]"


def methods(name: str | None = None, /) -> None:
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
    from swamp.terminal import print_table

    if name:
        print(method_page(find_method(name)[0]))
        return
    rows = []
    for known, method in all_methods().items():
        rows.append([known, method.summary, method.cost, method.paper])
        rows += [[preset.name, preset.summary, "", f"preset of {known}"] for preset in method.presets]
    print_table(Table("Methods (swamp run RECIPE --method NAME)", ["name", "what it does", "cost / IMP", "paper"], rows))
