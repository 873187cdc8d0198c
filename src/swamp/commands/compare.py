"""swamp compare: methods in one table, for a screen, a paper or another program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Form = Literal["text", "markdown", "latex", "csv", "json"]
SUFFIXES: dict[str, Form] = {".txt": "text", ".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}


def compare(
    *directories: Annotated[Path, Parameter(help="Run directories or groups of them (DIR/seed-0, DIR/seed-1, …).")],
    format: Form | None = None,
    out: Path | None = None,
    plot: Path | None = None,
) -> None:
    """Compare runs in one table a recipe: accuracy and NLL of each method at each sparsity, over all seeds, best and second best marked.
    Where runs share seeds, a second table has their differences, paired by seed, with a confidence interval. A damaged run is named, and
    the others are compared.

    Parameters
    ----------
    format
        text, markdown or latex (booktabs): the table. csv or json: every number that was measured, seed by seed. Default: as the name of
        --out ends, else text.
    out
        Write it into this file.
    plot
        Draw test error against sparsity into this file (.png, .svg or .pdf).
    """
    from swamp.drawing.formats import as_csv, as_json, latex, markdown
    from swamp.report.figures.curves import error_against_sparsity
    from swamp.results.comparison import comparisons, records
    from swamp.results.differences import differences
    from swamp.results.series import make_series
    from swamp.results.stored_run import require_runs
    from swamp.terminal import plain_text, print_table

    if not directories:
        raise ValueError("compare needs at least one run directory")
    form = format or form_of(out)
    runs, left_out = require_runs(directories)
    all_series = make_series(runs)
    if form in ("csv", "json"):
        for one in left_out:
            print(f"swamp: {one}", file=sys.stderr)
        found = list(records(all_series))
        text = as_csv(found) if form == "csv" else as_json(found)
    else:
        tables = [*comparisons(all_series, left_out), *differences(all_series)]
        text = "\n".join(map({"text": plain_text, "markdown": markdown, "latex": latex}[form], tables))
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
        print(f"table: {out}")
    elif form == "text" and sys.stdout.isatty():
        for table in tables:
            print_table(table)
    else:
        print(text, end="")
    if plot:
        error_against_sparsity(all_series, plot)
        if out or form == "text":
            print(f"picture: {plot}")


def form_of(out: Path | None) -> Form:
    """As the name of the file ends; one without an ending holds text."""
    suffix = out.suffix if out else ""
    if suffix and suffix not in SUFFIXES:
        raise ValueError(f"--out {out}: a table's name ends in one of {', '.join(SUFFIXES)}, unless --format says what it holds")
    return SUFFIXES.get(suffix, "text")
