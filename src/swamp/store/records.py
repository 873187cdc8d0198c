"""The rows of a run as results.json stores them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from swamp.core.keys import canonical
from swamp.core.metric import Metric
from swamp.store.directory import Store, identity_of
from swamp.store.files import Damaged
from swamp.tasks.metrics import find_metrics

ROW_FORMAT = 2  # An entry in the header of a run: the checksums of its rows cover the run's identity. Older runs have no such entry.


class RowRecord(Struct, frozen=True, kw_only=True):
    """A row as results.json stores it."""

    cycle: int
    sparsity: float  # of the prunable weights
    sparsity_of_all: float  # of all parameters
    num_survivors: int
    num_prunable: int
    metric: str  # the name of the metric that counts
    metrics: dict[str, float]  # on the test set; for a classifier accuracy, nll, calibrated_nll and ece
    members: list[dict[str, float]]  # the metrics of each particle; empty where there is only one
    densities: dict[str, float]  # of each prunable layer
    empty_layers: list[str]
    macs: float  # forward multiply-adds of one example
    cost: float  # the paper's: forward multiply-adds of one example, summed over all trainings so far, the ticket excluded
    training_macs: float  # all multiply-adds so far, the ticket included
    solution: str  # key of the weights
    mask: str  # key of the mask
    particles: list[str]  # keys of the particles' weights
    selected_on: str | UnsetType = UNSET  # the held-out split by which the method selected the row
    notes: list[str] | UnsetType = UNSET  # what readers of these numbers must know, where there is something
    descriptions: list[Metric] | UnsetType = UNSET  # of all metrics; rows that were stored by version 0.1.0 lack them
    uncounted: list[str] | UnsetType = UNSET  # prunable weights whose multiply-adds are unknown and in none of the counts
    checksum: str = ""  # of all the rest

    @property
    def described(self) -> dict[str, Metric]:
        """The descriptions of all metrics by name, in the order of tables: the one that counts comes first."""
        known = find_metrics(self.metrics) if self.descriptions is UNSET else self.descriptions
        counts = [metric for metric in known if metric.name == self.metric]
        return {metric.name: metric for metric in [*counts, *known]}

    @property
    def clauses(self) -> list[str]:
        """All that tables note of the row."""
        empty = [f"empty layers: {', '.join(self.empty_layers)}"] if self.empty_layers else []
        return [*empty, *(self.notes or ())]

    def expected_checksum(self, identity: Sequence[str] = ()) -> str:
        """Return the checksum that the row should have. It covers the identity of the run, so that rows cannot change places."""
        rest = {name: value for name, value in msgspec.to_builtins(self).items() if name != "checksum"}
        return hashlib.sha256(canonical({"row": rest, "run": list(identity)} if identity else rest)).hexdigest()[:40]


def row_identity(header: Mapping[str, Any] | None) -> list[str]:
    """Return the identity of a run that the checksums of its rows cover. It is empty for runs that are older than `ROW_FORMAT`."""
    return identity_of(header) if header is not None and header.get("row_format") == ROW_FORMAT else []


def row_format(before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entry of a header that says how rows are written. A run that has a header already, `before`, keeps its format."""
    return {"row_format": ROW_FORMAT} if before is None or before.get("row_format") == ROW_FORMAT else {}


def read_rows(out: Path) -> list[RowRecord]:
    """Return the rows that a run directory has so far, checked as `checked_rows` does."""
    store = Store(out)
    return checked_rows(store, store.header())[0]


def checked_rows(store: Store, header: Mapping[str, Any] | None) -> tuple[list[RowRecord], str | None]:
    """Return the rows of a run with this header, and the checksum of results.json, or None if it is not there.

    Rows are `Damaged` if they are not as they were written, not those of this run, or not those that the manifest of a finished run lists.
    """
    path = store.root / "results.json"
    listed = store.manifest().get(path.name, "") if store.finished() else None
    try:
        data = store.folder.read_text(path.name)
    except FileNotFoundError:
        if listed is not None:
            raise Damaged(path, "it is missing; resuming the run writes it anew") from None
        return [], None
    checksum = hashlib.sha256(data).hexdigest()
    rows = decode_rows(data, path, row_identity(header))
    if listed is not None and checksum != listed:
        raise Damaged(path, "it changed since the run was finished; resuming the run writes it anew")
    return rows, checksum


def decode_rows(data: bytes, path: Path, identity: Sequence[str]) -> list[RowRecord]:
    """Return the rows in the content of a results.json. `path` is the file that it was read from."""
    try:
        rows = msgspec.json.decode(data, type=list[RowRecord])
    except (ValueError, RecursionError) as error:
        raise Damaged(path, f"{error}; resuming the run writes it anew") from None
    if altered := [str(row.cycle) for row in rows if row.checksum != row.expected_checksum(identity)]:
        why = f"it was altered at cycle {', '.join(altered)}, or is of another run"
        raise Damaged(path, f"{why}; resuming the run writes it anew")
    if len({row.cycle for row in rows}) < len(rows):
        raise Damaged(path, "it has a cycle twice; resuming the run writes it anew")
    return rows
