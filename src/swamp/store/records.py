"""The rows of a run as results.json stores them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from swamp.core.keys import canonical
from swamp.core.metric import Metric
from swamp.tasks.metrics import find_metrics


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
    descriptions: list[Metric] | UnsetType = UNSET  # of all metrics; rows that were stored by version 0.1.0 lack them
    checksum: str = ""  # of all the rest

    @property
    def described(self) -> dict[str, Metric]:
        """The descriptions of all metrics by name, in the order of tables: the one that counts comes first."""
        known = find_metrics(self.metrics) if self.descriptions is UNSET else self.descriptions
        counts = [metric for metric in known if metric.name == self.metric]
        return {metric.name: metric for metric in [*counts, *known]}

    def expected_checksum(self) -> str:
        """Return the checksum that the row should have."""
        rest = {name: value for name, value in msgspec.to_builtins(self).items() if name != "checksum"}
        return hashlib.sha256(canonical(rest)).hexdigest()[:40]


def read_rows(out: Path) -> list[RowRecord]:
    """Return the rows that a run directory has so far."""
    path = out / "results.json"
    return decode_rows(path.read_bytes(), path) if path.exists() else []


def decode_rows(data: bytes, path: Path) -> list[RowRecord]:
    """Return the rows in the content of a results.json. `path` is the file that it was read from."""
    try:
        rows = msgspec.json.decode(data, type=list[RowRecord])
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is damaged ({error}); resuming the run writes it anew") from None
    if altered := [str(row.cycle) for row in rows if row.checksum != row.expected_checksum()]:
        raise ValueError(f"{path} was altered at cycle {', '.join(altered)}; resuming the run writes it anew")
    return rows
