"""What `swamp ensemble` left beside runs: networks whose predictions are averaged, such as IMP-n."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct


class EnsembleRow(Struct, frozen=True, kw_only=True):
    """The networks of several runs at one cycle, with their predictions averaged."""

    cycle: int
    sparsity: float  # mean over the networks
    metrics: dict[str, float]  # of the ensemble, on the test set
    members: list[dict[str, float]]  # of each network
    macs: float  # of all networks together
    solutions: list[str] = []  # the keys of the networks' weights


class Ensemble(Struct):
    """ensemble-N.json."""

    recipe: str
    method: str
    metric: str
    runs: list[str]
    rows: list[EnsembleRow]

    @property
    def label(self) -> str:
        return f"{self.method}-{len(self.runs)}, an ensemble"


def read_ensembles(places: Iterable[Path]) -> list[Ensemble]:
    """Read the ensembles that are stored beside runs or groups of runs, each once."""
    found: dict[tuple[str, ...], Ensemble] = {}
    for path in (path for place in places for path in sorted((place / "analysis").glob("ensemble-*.json"))):
        try:
            one = msgspec.json.decode(path.read_bytes(), type=Ensemble)
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); swamp ensemble makes it again") from None
        found[tuple(one.runs)] = one
    return list(found.values())
