"""`swamp ensemble`: the mean prediction of several runs."""

from __future__ import annotations

from swamp.commands.arguments import Directory, Flag, TaskOption, TrustOption, made_task
from swamp.commands.notices import print_notices

group = "Look at results"
usage = "Usage: swamp ensemble DIR DIR … [OPTIONS]"


def ensemble(
    *directories: Directory, json: Flag = False, task: TaskOption = None, trust: TrustOption = False, device: str = "auto"
) -> None:
    """Average the predictions of several runs' networks at each sparsity (of IMP runs: IMP-n).

    The runs need different seeds, so that their networks were found independently, and must have kept their weights (keep = all or
    averages). The result is stored in analysis/ensemble-N.json of the first directory, for figures.

    Parameters
    ----------
    json
        Print JSON.
    device
        Where to run the networks, such as cpu or cuda.
    """
    from swamp.report.tables import ensemble_table
    from swamp.results.ensemble import average_predictions, write_ensemble
    from swamp.results.stored_run import require_runs
    from swamp.store.files import Damaged, explain_os_error
    from swamp.terminal import print_json, print_remark, print_table

    if not directories:
        raise ValueError("ensemble needs at least two runs, or a group of runs")
    runs, left_out = require_runs(directories)
    print_notices(runs, left_out)
    rows = list(average_predictions(runs, made_task(task), device, trust))
    try:
        write_ensemble(directories[0], runs, rows)
    except (OSError, Damaged) as error:  # such as a place that may only be read
        print_remark(f"not kept for figures: {explain_os_error(error) if isinstance(error, OSError) else error}")
    if json:
        print_json(rows)
    else:
        print_table(ensemble_table(rows))
