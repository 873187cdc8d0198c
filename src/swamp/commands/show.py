"""`swamp show`: the rows of a run and its state."""

from __future__ import annotations

from swamp.commands.arguments import Directory
from swamp.commands.notices import print_notices

group = "Look at results"


def show(directory: Directory, /) -> None:
    """Show a run: its rows, its configuration, and whether it is finished."""
    from swamp.drawing.numbers import count
    from swamp.report.tables import run_table
    from swamp.results.stored_run import NothingToShow, read_each
    from swamp.store.finding import runs_in
    from swamp.terminal import print_line, print_table

    runs, left_out = read_each(runs_in(directory))
    if not runs:
        raise NothingToShow.of(left_out)
    print_notices(left_out=left_out)
    for run in runs:
        print_notices([run])
        path, config, again = run.directory, run.config, run.resume_command
        print_table(run_table(run))
        failed = f", it failed: {run.failure}" if run.failure else ""
        state = "finished" if run.finished else f"not finished ({len(run.rows)} rows so far){failed}; go on with: {again}"
        version = run.header["versions"]
        print_line(f"{path}: {state}")
        print_line(f"configuration {run.header['config_hash']}, readable in {path / 'config.toml'}")
        begun_with = f"begun with swamp {version['swamp']} and torch {version['torch']}"
        print_line(f"{config.precision}, {count(config.threads, 'thread')} a training, {begun_with}")
        if altered := run.altered():
            print_line(f"since then {altered}; `{again}` puts that right")
