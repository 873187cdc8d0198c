"""Writes a network of a run to a file, with a card beside it."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

from swamp.core.patterns import Pattern
from swamp.export.formats import ValueType, export, find_format, format_for
from swamp.export.formats.sparse import dense_bytes
from swamp.report.card import model_card
from swamp.results.stored_run import StoredRun
from swamp.runs.stored import about, load_network
from swamp.store.files import write_output
from swamp.store.records import RowRecord
from swamp.tasks.task import Task
from swamp.training.numerics import applied


def card_of(file: Path) -> Path:
    """Return the path of the card of an exported network."""
    return file.with_name(file.name + ".md")


def checked_format(file: Path, format: str | None, overwrite: bool) -> str:
    """Return the name of the format of a file to be written, by default the one of its suffix. The file and its card must not exist."""
    name: str = (format_for(file) if format is None else find_format(format)).name
    for path in (file, card_of(file)):
        if path.is_dir():
            raise ValueError(f"{path} is a directory; name a file")
        if path.exists() and not overwrite:
            raise ValueError(f"{path} is there already; --overwrite replaces it (in Python overwrite=True)")
    return name


def write_network(run: StoredRun, row: RowRecord, task: Task, file: Path, format: str, values: ValueType = "float32") -> list[str]:
    """Write the network of a row and its card, and return sentences about them for the user."""
    config = run.config
    state, mask = load_network(run.directory, row)
    with applied(config.numerics):
        content, notes = export(
            state, mask, task, format, values, about(config, run.header, row), Pattern.parse(config.pruning.pattern).narrows
        )
    options = {"cycle": row.cycle, "format": format, "out": file, "values": values}
    command = shlex.join(
        ["swamp", "export", str(run.directory), *(part for name, value in options.items() for part in (f"--{name}", str(value)))]
    )
    digest = hashlib.sha256(content).hexdigest()
    write_output(file, content)
    write_output(card_of(file), model_card(run, row, file, len(content), digest, command, notes).encode(errors="backslashreplace"))
    dense, metric = dense_bytes(state), row.described[row.metric]
    return [
        f"cycle {row.cycle}, {100 * row.sparsity:.2f} % sparse, stored {metric.with_unit(metric.text(row.metrics[row.metric]))}",
        *notes,
        f"{file}: {len(content):,} bytes, {len(content) / dense:.3f} times the {dense:,} of its dense tensors; card: {card_of(file)}",
    ]
