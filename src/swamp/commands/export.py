"""swamp export: write a network of a run to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from swamp.commands.arguments import Flag, TaskOption, TrustOption, WholeNumber, made_task
from swamp.commands.notices import print_notices

group = "Use a network"


def export(
    directory: Annotated[Path, Parameter(name="DIR", help="A run directory.")],
    /,
    *,
    out: Path,
    format: str | None = None,
    cycle: WholeNumber | None = None,
    sparsity: float | None = None,
    values: Literal["float32", "float16", "bfloat16", "int8"] = "float32",
    task: TaskOption = None,
    trust: TrustOption = False,
    overwrite: Flag = False,
) -> None:
    """Write a network of a run, by default that of the last row, to a file with a card beside it (FILE.md).

    Parameters
    ----------
    out
        The file.
    format
        The format, such as sparse, which is compact, or onnx, a graph for onnxruntime and others. docs/export.md lists the formats.
        Default: the format of the file's suffix (.swamp, .onnx, .safetensors, .pt).
    cycle
        The row of this cycle.
    sparsity
        The row nearest to this sparsity, such as 0.95, which must be within 1.5 points of it.
    values
        Type of the stored weights of pruned layers. 16 bits halve their size, int8 (sparse files) quarters it and makes inference faster;
        the effect on the metric is printed.
    overwrite
        Replace existing files.
    """
    from swamp.network_file import checked_format, write_network
    from swamp.results.stored_run import read_run
    from swamp.runs.opening import open_stored_task
    from swamp.runs.stored import find_row
    from swamp.runs.stored_init import task_of_run
    from swamp.terminal import print_line

    chosen = checked_format(out, format, overwrite)
    run = read_run(directory)
    print_notices([run])
    row = find_row(directory, run.rows, cycle, sparsity)
    opened = made_task(task) or open_stored_task(run.config, directory, trust)
    if task:
        opened = task_of_run(opened, run.header, directory)
    for line in write_network(run, row, opened, out, chosen, values):
        print_line(line)
