"""`swamp copy`: a small copy of a stopped run, for another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from swamp.commands.arguments import Directory, SettingArgument, TaskOption, TrustOption
from swamp.commands.execution import stored_requests

group = "Train"
usage = "Usage: swamp copy DIR OTHER [--setting VALUE …] [OPTIONS]"


def copy(
    directory: Directory,
    other: Path,
    /,
    *arguments: SettingArgument,
    keep: Literal["all", "averages", "last"] | None = None,
    cache: Path | None = None,
    data: Path | None = None,
    task: TaskOption = None,
    trust: TrustOption = False,
) -> None:
    """Copy a stopped run, or a group, with only the weights that resuming needs, to resume it on another machine.

    All rows, masks, measurements and curves are copied, and nothing that was finished is computed again. The run itself stays as it is.

    Parameters
    ----------
    other
        The new directory.
    keep
        Copy weights of finished rows too: of all particles, of the averages, or of the last row. Default: none.
    cache
        The cache that the runs of a group share. The copies then share a new one, OTHER/cache.
    data
        Folder that holds your data sets, if it is another than before.
    """
    from swamp.runs.copying import copy_runs
    from swamp.runs.opening import prepare
    from swamp.terminal import print_line

    requests = stored_requests(directory, arguments, copy, task, data, trust)
    paths = [request.directory for request in requests]
    if cache and paths == [directory]:
        raise ValueError("--cache is for runs that share it, and this is a single run: leave it out, or name the group")
    targets = [other / path.relative_to(directory) for path in paths]
    copy_runs(prepare(requests, cache, to_train=False), targets, other / "cache" if cache else None, keep)
    for target in targets:
        print_line(f"copy: {target}")
