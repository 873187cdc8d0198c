"""`swamp resume`: continue a run from its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from swamp.commands.arguments import PROGRESS_OPTIONS, Directory, ProgressOptions, TaskOption, TrustOption, split_arguments
from swamp.commands.execution import execute

usage = "Usage: swamp resume DIR [--setting VALUE …] [OPTIONS]"


def resume(
    directory: Directory,
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True, name="SETTINGS")],
    cache: Path | None = None,
    data: Path | None = None,
    copy_to: Path | None = None,
    task: TaskOption = None,
    trust: TrustOption = False,
    progress: ProgressOptions = PROGRESS_OPTIONS,
) -> None:
    """Continue a run that was stopped. The command that began it does the same.

    Settings that decide no numbers may change: --device, --engine, --keep, --checkpoint_seconds, --notes. A function that makes the task,
    or the address of a cluster, is not taken from the directory: name it again (--task, --ray-address) or say --trust.

    Parameters
    ----------
    arguments
        Settings as --name value.
    cache
        Directory in which runs share what they have in common.
    data
        Folder that holds your data sets, if it is another than before.
    copy_to
        Copy the run, or the group, to this new directory instead, with only the weights that going on takes, to be moved to another
        machine and resumed there. With --keep, weights of finished rows are copied too; with --cache, the copies share COPY_TO/cache.
    """
    from swamp.runs.config import require_trust, with_settings
    from swamp.runs.opening import RunRequest
    from swamp.runs.stored import read_config
    from swamp.store.finding import runs_in

    alone, settings = split_arguments(arguments, resume)
    if alone:
        raise ValueError(f"one directory at a time, not {', '.join(alone)} too; settings are written --name value")
    if task is not None:
        settings["task"] = task
    if data is not None:
        settings["data"] = data
    progress.check()
    paths = runs_in(directory)
    if linked := [path for path in paths if path != directory and path.is_symlink()]:
        raise ValueError(f"{linked[0]} is a link, through which nothing is written: resume the directory that it leads to")
    requests = [RunRequest(with_settings(read_config(path), settings), path) for path in paths]
    for request in requests:
        require_trust(request.config, request.directory, trust, settings)
    if copy_to is None:
        execute(requests, cache, directory, progress)
        return
    from swamp.runs.copying import copy_runs
    from swamp.runs.opening import prepare
    from swamp.terminal import print_line

    if cache and paths == [directory]:
        raise ValueError("--cache is for runs that share it, and this is a single run: leave it out, or name the group")
    targets = [copy_to / path.relative_to(directory) for path in paths]
    copy_runs(prepare(requests, cache, to_train=False), targets, copy_to / "cache" if cache else None, settings.get("keep"))
    for target in targets:
        print_line(f"copy: {target}")
