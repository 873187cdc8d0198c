"""The pages that hold tables of the reproduction.

A table stands below a line `<!-- table NAME -->`, after an empty line, and ends at the next empty line; NAME is a function of the modules
here. Each module is of one page, `PAGE`. Verdicts and prose are written by hand, and must have certain passages: each module's
`verdicts`, if it has them, are passages of the table of verdicts, and `stated` are passages of its own page.
"""

from __future__ import annotations

import re
from pathlib import Path

from docs.reproduction_tables import (
    ablation,
    cifar100,
    curvature,
    digits_connectivity,
    digits_equal_cost,
    digits_flatness,
    digits_longer_cycles,
    digits_methods,
    digits_prune_fraction,
    equal_cost,
    full_schedule,
    language,
    tenth,
    tenth_methods,
)
from docs.reproduction_tables.stored import ROOT

VERDICTS = ROOT / "docs" / "reproduction.md"
STUDY_PAGES = sorted((ROOT / "docs" / "reproduction").glob("*.md"))
PAGES = (ROOT / "README.md", VERDICTS, *STUDY_PAGES)
BLOCK = re.compile(r"(?<=<!-- table )(\w+)( -->\n\n).*?(?=\n\n)", re.DOTALL)
TABLES = {
    made.__name__: made
    for made in (
        full_schedule.full_accuracy,
        full_schedule.full_nll,
        full_schedule.full_seeds,
        full_schedule.main,
        curvature.flatness,
        tenth.curve,
        tenth.repeat,
        tenth.seeds,
        tenth_methods.methods_accuracy,
        tenth_methods.methods_nll,
        ablation.ablations,
        ablation.ablations_by_sparsity,
        equal_cost.equal_cost,
        cifar100.cifar100_accuracy,
        cifar100.cifar100_nll,
        digits_methods.digits_methods,
        digits_equal_cost.digits,
        digits_longer_cycles.digits_longer_cycles,
        digits_prune_fraction.digits_prune_fraction,
        digits_flatness.digits_flatness,
        digits_connectivity.digits_connectivity,
        language.mrpc,
        language.rte,
    )
}
STUDIES = (
    full_schedule,
    tenth,
    tenth_methods,
    ablation,
    equal_cost,
    cifar100,
    digits_methods,
    digits_equal_cost,
    digits_longer_cycles,
    digits_prune_fraction,
    digits_flatness,
    digits_connectivity,
)


def stated() -> dict[Path, list[str]]:
    """Return the passages that follow from stored results, by the page that must have them."""
    found: dict[Path, list[str]] = {VERDICTS: []}
    for module in STUDIES:
        found.setdefault(ROOT / "docs" / "reproduction" / f"{module.PAGE}.md", []).extend(module.stated())
        found[VERDICTS] += module.verdicts() if hasattr(module, "verdicts") else []
    return found


def with_tables(page: str) -> str:
    """Return the page with its tables made anew."""
    return BLOCK.sub(lambda found: found[1] + found[2] + TABLES[found[1]](), page)
