"""The pages that hold tables of the reproduction.

A table stands below a line `<!-- table NAME -->`, after an empty line, and ends at the next empty line; NAME is a function of the modules
here. Verdicts are written by hand; `stated` says which numbers they must have.
"""

from __future__ import annotations

import re

from docs.reproduction_tables import (
    ablation,
    cifar100,
    digits_connectivity,
    digits_equal_cost,
    digits_flatness,
    digits_methods,
    digits_prune_fraction,
    equal_cost,
    full_schedule,
    language,
    tenth,
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
        full_schedule.readme,
        full_schedule.flatness,
        tenth.curve,
        tenth.repeat,
        tenth.seeds,
        tenth.methods_accuracy,
        tenth.methods_nll,
        ablation.ablations,
        equal_cost.equal_cost,
        cifar100.cifar100,
        digits_methods.digits_methods,
        digits_equal_cost.digits,
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
    ablation,
    equal_cost,
    cifar100,
    digits_methods,
    digits_equal_cost,
    digits_prune_fraction,
    digits_flatness,
    digits_connectivity,
)


def stated() -> list[str]:
    """Return all passages of the page's prose that follow from stored results."""
    return [passage for module in STUDIES for passage in module.stated()]


def with_tables(page: str) -> str:
    """Return the page with its tables made anew."""
    return BLOCK.sub(lambda found: found[1] + found[2] + TABLES[found[1]](), page)
