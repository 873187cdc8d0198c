"""The card that goes with an exported network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swamp.core.machine import versions
from swamp.drawing.numbers import percent
from swamp.results.stored_run import StoredRun
from swamp.runs.config import deciding_settings
from swamp.runs.stored import task_settings
from swamp.store.records import RowRecord


def model_card(run: StoredRun, row: RowRecord, file: Path, size: int, sha256: str, command: str, notes: Sequence[str]) -> str:
    """Return the card as Markdown. Nobody but the publisher knows the licences, so those fields are left to be filled in."""
    config = run.config
    settings = task_settings(config)
    what = ", ".join(str(settings[name]) for name in ("model", "dataset") if name in settings) or "made by a script"
    without = f", without those of {', '.join(row.uncounted)}, which are unknown" if row.uncounted else ""
    facts = [
        ("task", f"{config.task}: {what}"),
        ("method", f"{config.method}, cycle {row.cycle}, seed {config.seed}, recipe {config.recipe}"),
        ("sparsity", f"{percent(row.sparsity)} % of {row.num_prunable:,} prunable weights ({row.num_survivors:,} survive)"),
        ("pattern", ", ".join([config.pruning.pattern, *([allocation] if (allocation := config.pruning.allocation) != "global" else [])])),
        ("sparsity of all parameters", f"{percent(row.sparsity_of_all)} %"),
        *((row.described[name].label, row.described[name].text(value)) for name, value in row.metrics.items()),
        ("forward multiply-adds of one example", f"{row.macs:,.0f} where zeros are skipped{without}"),
        ("cost of finding it", f"{row.training_macs:,.3g} multiply-adds of training"),
        ("file", f"{file.name}, {size:,} bytes, sha256 {sha256}"),
        ("exported by", f"`{command}`"),
        ("trained with", _listed(run.header["versions"])),
        ("exported with", _listed(versions())),
        ("licence of the weights", "to be filled in"),
        ("licence of the training data", "to be filled in"),
    ]
    return "\n".join(
        [
            "---",
            "license: unknown",
            "tags: [pruning, sparse]",
            "---",
            "",
            f"# {config.recipe}, {config.method}, {percent(row.sparsity)} % sparse",
            "",
            "Metrics are those on the test set, at the last epoch, as the run stored them.",
            "",
            *_table(("", ""), facts),
            "",
            *(f"- {note}" for note in notes),
            "",
            "## Sparsity of each layer",
            "",
            *_table(("layer", "sparsity %"), [(name, percent(1 - density)) for name, density in row.densities.items()]),
            "",
            "## What decided the numbers",
            "",
            *_table(("setting", "value"), [(name, str(value)) for name, value in sorted(deciding_settings(config).items())]),
            "",
        ]
    )


def _listed(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _table(header: tuple[str, str], rows: Sequence[tuple[str, str]]) -> list[str]:
    def cell(text: str) -> str:
        return " ".join(text.split()).replace("|", "\\|")  # names of directories may hold anything

    return [f"| {cell(left)} | {cell(right)} |" for left, right in (header, ("---", "---"), *rows)]
