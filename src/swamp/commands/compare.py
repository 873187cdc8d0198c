"""swamp compare: methods in one table, for a screen, a paper or another program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from swamp.commands.arguments import Directory
from swamp.commands.notices import print_notices
from swamp.drawing.tables import FORMATS, format_name

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[tuple(FORMATS)]

FORMAT_HELP = (
    f"{', '.join(name for name, one in FORMATS.items() if one.table)}: the table. "
    f"{', '.join(name for name, one in FORMATS.items() if one.records)}: every number that was measured, seed by seed. "
    "Default: as the name of --out ends, else text."
)


group = "Look at results"
usage = "Usage: swamp compare DIR … [OPTIONS]"


def compare(
    *directories: Directory,
    format: Annotated[FormatName | None, Parameter(help=FORMAT_HELP)] = None,
    out: Path | None = None,
    plot: Path | None = None,
    metric: str | None = None,
) -> None:
    """Compare methods in one table: their metrics at each sparsity, over seeds.

    Each recipe has a table of its own, in which the best and the second best method are marked. Where runs share seeds, a second table has
    their differences, paired by seed, with a confidence interval from three seeds on. A damaged run is named, and the others are compared.

    Parameters
    ----------
    out
        Write the table or the numbers to this file.
    plot
        Draw test error against sparsity into this file (.png, .svg or .pdf).
    metric
        Compare by this metric, such as nll. Default: the metric that counts and, of up to three methods, the NLL.
    """
    from swamp.drawing.canvas import check_picture
    from swamp.results.comparison import comparisons, differences, records, require_metric
    from swamp.results.series import make_series
    from swamp.results.stored_run import require_runs
    from swamp.store.files import write_output
    from swamp.terminal import print_line, print_tables

    if not directories:
        raise ValueError("compare needs at least one run directory")
    name = format or format_name(out)
    if plot:
        check_picture(plot)
    runs, left_out = require_runs(directories)
    print_notices(runs)
    all_series = make_series(runs)
    require_metric(all_series, metric)
    if plot:
        from swamp.report.figures.gallery import draw_series

        draw_series("error", all_series, plot)
    chosen, tables = FORMATS[name], []
    if chosen.records:
        print_notices(left_out=left_out)
        text = chosen.records([record for record in records(all_series) if metric in (None, record["metric"])])
    else:
        assert chosen.table
        tables = [*comparisons(all_series, left_out, metric), *differences(all_series, metric)]
        text = "\n".join(map(chosen.table, tables))
    if out:
        write_output(out, text.encode())
        print_line(f"table: {out}")
    elif name == "text":
        print_tables(tables)
    else:
        print(text, end="")
    if plot and (out or name == "text"):
        print_line(f"picture: {plot}")
