"""`swamp show`: the rows of a run and its state."""

from __future__ import annotations

from swamp.commands.arguments import Directory


def show(directory: Directory, /) -> None:
    """Show a run: its rows, how it was made, and whether it is finished."""
    from swamp.report.tables import run_table
    from swamp.runs.stored import read_config
    from swamp.store.directory import Store, runs_in
    from swamp.store.records import read_results, resume_command
    from swamp.terminal import print_table

    for path in runs_in(directory):
        config, store = read_config(path), Store(path)
        print_table(run_table(path))
        rows, again = len(read_results(path)), resume_command(path)
        failed = f", it failed: {why}" if (why := store.journal.failure()) else ""
        state = "finished" if store.finished() else f"not finished ({rows} rows so far){failed}; go on with: {again}"
        header = store.header() or {}
        version = header["versions"]
        print(f"{path}: {state}")
        print(f"configuration {header['config_hash']}, readable in {path / 'config.toml'}")
        print(
            f"{config.precision}, {config.threads} thread(s) a training, begun with swamp {version['swamp']} and torch {version['torch']}"
        )
        if store.finished() and (altered := store.altered()):
            print(f"since then {altered}; `{again}` puts that right")
