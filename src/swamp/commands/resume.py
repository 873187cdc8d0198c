"""`swamp resume`: continue a run from its directory."""

from __future__ import annotations

from pathlib import Path

from swamp.commands.arguments import PROGRESS_OPTIONS, Directory, ProgressOptions, SettingArgument, TaskOption, TrustOption
from swamp.commands.execution import execute, stored_requests

group = "Train"
usage = "Usage: swamp resume DIR [--setting VALUE …] [OPTIONS]"


def resume(
    directory: Directory,
    /,
    *arguments: SettingArgument,
    cache: Path | None = None,
    data: Path | None = None,
    task: TaskOption = None,
    trust: TrustOption = False,
    progress: ProgressOptions = PROGRESS_OPTIONS,
) -> None:
    """Continue a run that was stopped. The command that began it does the same.

    Settings that decide no numbers may change: --device, --engine, --keep, --checkpoint_seconds, --notes. A function that makes the task,
    or the address of a cluster, is not taken from the directory: name it again (--task, --ray-address) or say --trust.

    Parameters
    ----------
    cache
        Directory in which runs share what they have in common.
    data
        Folder that holds your data sets, if it is another than before.
    """
    progress.check()
    execute(stored_requests(directory, arguments, resume, task, data, trust), cache, directory, progress)
