"""swamp export: write a network of a run to a file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from swamp.commands.arguments import Flag, TaskOption, TrustOption, made_task
from swamp.commands.notices import print_notices


def export(
    directory: Annotated[Path, Parameter(name="DIR", help="A run directory.")],
    /,
    *,
    format: str,
    out: Path,
    cycle: int | None = None,
    sparsity: float | None = None,
    values: Literal["float32", "float16", "bfloat16"] = "float32",
    task: TaskOption = None,
    trust: TrustOption = False,
    overwrite: Flag = False,
) -> None:
    """Write a network of a run, by default that of the last row, to a file with a card beside it (FILE.md).

    Parameters
    ----------
    format
        The format, such as sparse, which is compact, or onnx, a graph for onnxruntime and others. docs/export.md lists the formats.
    out
        The file.
    cycle
        The row of this cycle.
    sparsity
        The row nearest to this sparsity, in percent.
    values
        Type of the stored weights of pruned layers. 16 bits halve their size; the effect on the metric is printed.
    overwrite
        Replace existing files.
    """
    import hashlib

    from swamp.export.formats import export as encode
    from swamp.export.formats import find_format
    from swamp.export.formats.sparse import dense_bytes
    from swamp.report.card import model_card
    from swamp.results.stored_run import read_run
    from swamp.runs.opening import open_stored_task
    from swamp.runs.stored import about, find_row, load_network
    from swamp.runs.stored_init import task_of_run
    from swamp.store.files import write_output
    from swamp.terminal import print_line
    from swamp.training.numerics import applied

    card = out.with_name(out.name + ".md")
    find_format(format)
    for path in (out, card):
        if path.is_dir():
            raise ValueError(f"--out {path} is a directory; name a file")
        if path.exists() and not overwrite:
            raise ValueError(f"{path} is there already; --overwrite replaces it")
    run = read_run(directory)
    print_notices([run])
    row = find_row(directory, run.rows, cycle, sparsity)
    config = run.config
    state, mask = load_network(directory, row)
    opened = made_task(task) or open_stored_task(config, directory, trust)
    if task:
        opened = task_of_run(opened, run.header, directory)
    with applied(config.numerics):
        content, notes = encode(state, mask, opened, format, values, about(config, run.header, row), config.pruning.pattern == "channel")
    options = {"cycle": row.cycle, "format": format, "out": out, "values": values}
    command = shlex.join(
        ["swamp", "export", str(directory), *(part for name, value in options.items() for part in (f"--{name}", str(value)))]
    )
    digest = hashlib.sha256(content).hexdigest()
    write_output(out, content)
    write_output(card, model_card(run, row, out, len(content), digest, command, notes).encode(errors="backslashreplace"))
    print_line(f"cycle {row.cycle}, {100 * row.sparsity:.2f} % sparse, stored {row.metric} {row.metrics[row.metric]:.4f}")
    for note in notes:
        print_line(note)
    dense = dense_bytes(state)
    print_line(f"{out}: {len(content):,} bytes, {len(content) / dense:.3f} times the {dense:,} of its dense tensors; card: {card}")
