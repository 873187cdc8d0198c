"""`swamp watch`: follow a run from its directory alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from swamp.commands.arguments import Directory, Flag, ProgressOptions
from swamp.commands.execution import print_runs

if TYPE_CHECKING:
    from swamp.progress_display import ProgressLines
    from swamp.runs.config import Config
    from swamp.runs.progress import WatchedRun

LOOK_SECONDS = 2.0  # between two looks

group = "Train"


def watch(
    directory: Directory,
    /,
    *,
    patience: float = 300.0,
    plain: Flag = False,
) -> None:
    """Follow a run of another process or machine until it is finished or has failed.

    The command only reads the directory, so any number of people can follow a run from any machine that sees its files. A training becomes
    visible when it saves its state, every 15 seconds or as checkpoint_seconds says.

    Parameters
    ----------
    patience
        Print a remark if nothing was written for this many seconds.
    plain
        Print lines without bars or colours, as in a log, also on a terminal.
    """
    import time

    from swamp.progress_display import OneOfUnrelated, progress_display
    from swamp.results.stored_run import NothingToShow
    from swamp.runs.progress import WatchedRun
    from swamp.runs.stored import read_config
    from swamp.store.files import explain_os_error
    from swamp.store.finding import runs_in

    watches: dict[Path, WatchedRun] = {}
    still: set[Path] = set()
    damaged: set[Path] = set()
    failed: set[Path] = set()
    with progress_display(plain=plain) as screen:
        while True:
            alone = (paths := runs_in(directory)) == [directory]
            for path in paths:
                if path in damaged:
                    continue
                try:
                    if path not in watches:
                        watches[path] = WatchedRun(path, screen if alone else OneOfUnrelated(screen, path.name))
                        begin(watches[path], path, screen)
                    elif not watches[path].finished:
                        watches[path].look()
                except (ValueError, OSError) as error:
                    if alone:
                        raise
                    damaged.add(path)
                    watches.pop(path)
                    screen.say(f"{path} is not watched: {explain_os_error(error) if isinstance(error, OSError) else error}")
            if not watches:
                raise NothingToShow(f"no run in {directory} can be watched")
            for path, one in watches.items():
                if one.failure and path not in failed:
                    screen.say(f"{path} failed: {one.failure}")
            failed = {path for path, one in watches.items() if one.failure}  # A run that was begun again has not failed.
            if all(one.finished or one.failure for one in watches.values()):
                break
            for path, one in watches.items():
                waited = 0.0 if one.finished or one.failure else one.seconds_idle()
                if waited < patience:
                    still.discard(path)
                elif path not in still:
                    still.add(path)
                    screen.say(stillness(read_config(path), path, waited))
            time.sleep(LOOK_SECONDS)
    print_runs(list(watches), directory, ProgressOptions(plain=plain))
    if failed:
        raise SystemExit(1)


def begin(watch: WatchedRun, path: Path, screen: ProgressLines) -> None:
    """Look for the first time, and print how far the run is."""
    from swamp.runs.stored import read_config

    watch.look()
    trained, seconds = watch.pace()
    if trained and seconds and not watch.finished:
        screen.time_left.add_measured(trained, seconds)
    config, of = read_config(path), f" of {watch.planned}" if watch.planned else ""
    state = "finished" if watch.finished else f"{len(watch.cycles)} rows and {watch.num_epochs}{of} epochs so far"
    screen.say(f"{path}: {config.method} on {config.recipe}, seed {config.seed}: {state}")


def stillness(config: Config, path: Path, seconds: float) -> str:
    """Return a remark about a run that has not moved."""
    from swamp.drawing.numbers import duration
    from swamp.runs.stored import resume_command

    again = resume_command(config, path)
    return f"{path}: nothing has moved for {duration(seconds)}; if its process has ended, go on with: {again}"
