"""What `prune` returns: the networks that it found, to load, choose, export and show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, overload

import torch
from torch import nn

from swamp.core.errors import nearest, require_kind
from swamp.core.mask import Mask
from swamp.core.metric import Metric
from swamp.drawing.markup import table_html
from swamp.drawing.tables import Table, plain_text
from swamp.export.formats import ValueType
from swamp.loading import Loaded, load
from swamp.network_file import checked_format, write_network
from swamp.report.page.document import write_report
from swamp.report.tables import run_notes, seeds_table
from swamp.results.series import equal_rows_note
from swamp.results.stored_run import read_run
from swamp.runs.stored import find_row, read_config
from swamp.store.records import RowRecord, read_rows
from swamp.tasks.own_loop import OwnLoopTask
from swamp.tasks.task import Task
from swamp.training.numerics import applied, autocast

SAME = 1e-9  # Differences of metrics are compared up to this, because 0.95 − 0.94 is a little more than 0.01.


class Chosen(NamedTuple):
    """The network that `Pruned.best` chose, and by which numbers."""

    model: nn.Module  # in evaluation mode; pruned weights are zero
    mask: Mask
    row: RowRecord
    on: str  # the split that it was chosen on; metrics of the same split are too good by the choice
    value: float  # of the metric that counts, on that split
    dense: float  # the same of the dense network

    def __str__(self) -> str:
        row, metric = self.row, self.row.described[self.row.metric]
        chosen = (
            f"{metric.with_unit(metric.text(self.value))} on the {self.on} split, by which it was chosen (dense {metric.text(self.dense)})"
        )
        tested = "" if self.on == "test" else f", and {metric.text(row.metrics[row.metric])} on the test split"
        return f"cycle {row.cycle}, {100 * row.sparsity:.2f} % sparse: {chosen}{tested}"


class _Shown:
    """Shows itself as a table: as text where it is printed, and as HTML in a notebook."""

    def table(self) -> Table:
        raise NotImplementedError

    def __str__(self) -> str:
        return plain_text(self.table()).rstrip("\n")

    def _repr_html_(self) -> str:
        return table_html(self.table())


class Pruned(_Shown):
    """The networks that `prune` found, one for each sparsity.

    `model` and `mask` are those of the last row, which is the sparsest: a module of the same class, in evaluation mode, whose pruned
    weights are zero. `rows` holds what was measured at each sparsity, dense first. `directory` is the run's, and `task` its model, data and
    loss.
    """

    def __init__(self, directory: Path, task: Task) -> None:
        self.directory, self.task = directory, task
        self.rows = read_rows(directory)
        self.model, self.mask, _ = load(directory, task=task)
        self._validated: dict[int, float] = {}  # the metric that counts on the validation split, by cycle

    def __repr__(self) -> str:
        return f"<Pruned {str(self.directory)!r}: {len(self.rows)} rows, up to {100 * self.rows[-1].sparsity:.2f} % sparse>"

    def table(self) -> Table:
        config = read_config(self.directory)
        notes = [*run_notes(read_run(self.directory)), f"run: {self.directory}"]
        return seeds_table(f"{config.method}, seed {config.seed}", [self.rows], "\n".join(notes))

    def at(self, *, sparsity: float | None = None, cycle: int | None = None) -> Loaded:
        """Load the network of a cycle, or the one nearest to a sparsity such as 0.9, which must be within 1.5 points of it."""
        return load(self.directory, self.row_at(sparsity=sparsity, cycle=cycle).cycle, task=self.task)

    def row_at(self, *, sparsity: float | None = None, cycle: int | None = None) -> RowRecord:
        """Return the row of a cycle, or the one nearest to a sparsity such as 0.9; the last row if neither is given."""
        return find_row(self.directory, self.rows, cycle, sparsity)

    def best(self, within: float = 0.01, on: Literal["validation", "test"] = "validation") -> Chosen:
        """Load the sparsest network whose metric is worse than that of the dense one by at most `within`, which is one point by default.

        It is chosen on the examples that were held out (`validation=` of `prune`). Choosing on the test set must be asked for with
        `on="test"`, because the test metric of a network that was chosen by it is too good; the result says what it was chosen on.
        """
        if on not in ("validation", "test"):
            raise ValueError(f"on = {on!r}: unknown split; {nearest(str(on), ['validation', 'test'])}")
        if on == "validation" and "validation" not in self.task.splits:
            advice = "" if isinstance(self.task, OwnLoopTask) else "give prune validation=0.1, or "
            raise ValueError(
                f"no training examples were held out to choose by: {advice}say on='test' to choose on the test set, whose metric is then "
                "too good"
            )
        first, metric = self.rows[0], self.rows[0].described[self.rows[0].metric]
        self._check_best(within, metric)
        values = {row.cycle: self._measured(row, on) for row in self.rows}
        sign = 1 if metric.maximise else -1
        good = [row for row in self.rows if sign * (values[first.cycle] - values[row.cycle]) <= within + SAME]
        chosen = max(good, key=lambda row: (row.sparsity, sign * values[row.cycle]))
        return Chosen(*load(self.directory, chosen.cycle, task=self.task), on, values[chosen.cycle], values[first.cycle])

    def _check_best(self, within: float, metric: Metric) -> None:
        if self.rows[0].sparsity > 0:
            raise ValueError(
                f"there is no dense network to compare with: method {read_config(self.directory).method!r} begins at "
                f"{100 * self.rows[0].sparsity:.2f} % sparsity"
            )
        if metric.maximise is None:
            raise ValueError(f"it is not known whether more of {metric.name!r} is better; say maximise=… to prune")
        require_kind("within", within, Real, "a number, such as 0.01")
        if not 0 <= within < math.inf:
            raise ValueError(f"within = {within}: expected a difference of {metric.name}, 0 or more")
        if metric.scale == 100 and within >= 1:
            raise ValueError(
                f"within = {within:g}: expected a difference of {metric.name} below 1, such as {within / 100:g} for {within:g} point(s)"
            )

    def _measured(self, row: RowRecord, split: str) -> float:
        """Return the metric that counts of a row on a split. Rows store it for the test set; elsewhere the network is evaluated, once."""
        if split == "test":
            return row.metrics[row.metric]
        if row.cycle not in self._validated:
            config = read_config(self.directory)
            device = torch.device(config.device)
            model = load(self.directory, row.cycle, task=self.task).model.to(device)
            with applied(config.numerics), autocast(config.numerics, device):
                self._validated[row.cycle] = self.task.evaluate(model, split)[row.metric]
        return self._validated[row.cycle]

    def export(
        self,
        file: str | Path,
        *,
        sparsity: float | None = None,
        cycle: int | None = None,
        format: str | None = None,
        values: ValueType = "float32",
        overwrite: bool = False,
    ) -> list[str]:
        """Write a network, by default the last, to a file with a card beside it, and return sentences about them.

        The suffix says the format: .swamp (sparse), .onnx, .safetensors or .pt; `format` names another. See `swamp export`.
        """
        if values not in get_args(ValueType):
            raise ValueError(f"values = {values!r}: unknown type; {nearest(str(values), get_args(ValueType))}")
        file = Path(file).expanduser()
        chosen = checked_format(file, format, overwrite)
        row = self.row_at(sparsity=sparsity, cycle=cycle)
        return write_network(read_run(self.directory), row, self.task, file, chosen, values)

    def report(self, file: str | Path | None = None) -> Path:
        """Write the page of `swamp report`, a single HTML file, and return its path. By default it lies beside the run's directory."""
        return _write_page([self.directory], self.directory, file)


class PrunedSeeds(_Shown, Sequence[Pruned]):
    """What `prune` found with each of several seeds, in their order. It is shown as a table of means and standard deviations over seeds."""

    def __init__(self, directory: Path, found: Sequence[Pruned]) -> None:
        self.directory = directory  # that holds the directories of all runs
        self._found = tuple(found)

    @overload
    def __getitem__(self, index: int) -> Pruned: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Pruned]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"<PrunedSeeds {str(self.directory)!r}: {len(self)} runs>"

    def table(self) -> Table:
        config = read_config(self[0].directory)
        rows = {read_config(found.directory).seed: found.rows for found in self}
        remarks = dict.fromkeys(note for found in self for note in [*run_notes(read_run(found.directory)), equal_rows_note(rows)] if note)
        notes = [*remarks, f"mean ± standard deviation over seeds {', '.join(map(str, rows))}", f"runs: {self.directory}"]
        return seeds_table(config.method, [found.rows for found in self], "\n".join(notes))

    def report(self, file: str | Path | None = None) -> Path:
        """Write the page of `swamp report` about all runs, a single HTML file, and return its path."""
        return _write_page([found.directory for found in self], self.directory, file)


def _write_page(directories: Sequence[Path], whole: Path, file: str | Path | None) -> Path:
    out = Path(file).expanduser() if file is not None else whole.absolute().with_name(f"{whole.absolute().name}.html")
    write_report(directories, out)
    return out
