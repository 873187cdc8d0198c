"""What tests of analyses share: small settings, a listener that counts and stops, and made-up results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from swamp.analyses import analyses
from swamp.analyses.analysis import Analysis, DamagedResult, SeriesResults, read_series
from swamp.analyses.masks import OverlapResult
from swamp.analyses.running import plan_analyses, run_analyses
from swamp.analyses.study import AnalysisListener, Study
from swamp.engines.engine import Progress
from swamp.results.series import Series
from swamp.results.stored_run import read_run
from swamp.store.analysis_store import AnalysisStore
from tests.support.made_up_runs import made_up

SMALL = {"examples": 40, "max_probes": 20, "steps": 6, "starts": 2, "points": 3, "samples": 2, "grid": 3}


def read_results(kind: Analysis, all_series: Sequence[Series]) -> list[SeriesResults]:
    """What a kind has found of series of runs; a damaged result is an error."""

    def throw(problem: DamagedResult) -> None:
        raise problem

    return read_series(kind, all_series, throw)


class Counting(AnalysisListener):
    """Counts the work, and stops after some of it."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.units: dict[str, int] = {}
        self.left: Any = None
        self.epochs = self.not_needed = 0
        self.stop_after = stop_after

    def begin(self, left: Any, seconds: Callable[[], dict[str, float]], at_most: Collection[str]) -> None:
        self.left = left

    def done(self, what: str, kind: str, units: int) -> None:
        self.units[kind] = self.units.get(kind, 0) + units
        if self.stop_after is not None and sum(self.units.values()) >= self.stop_after:
            raise KeyboardInterrupt

    def skipped(self, kind: str, units: int) -> None:
        self.not_needed += units

    def epoch(self, progress: Progress) -> None:
        self.epochs += progress.trained


def plan_named(study: Study, names: Collection[str]) -> Any:
    return plan_analyses(study, [analyses()[name] for name in names])


def run_named(study: Study, *names: str) -> dict[str, Any]:
    """Run analyses of a study, and return the results as plain values."""
    works, _ = plan_named(study, names or list(analyses()))
    return {name: msgspec.to_builtins(result) for name, result in run_analyses(study, works).items()}


def analyse_small(run: Path, *names: str, listener: Counting | None = None, **kwargs: Any) -> dict[str, Any]:
    return run_named(Study(read_run(run), options=SMALL, listener=listener, **kwargs), *names)


RUN = {"recipe": "digits", "method": "swamp", "seed": 3}
MEASURES = ("test error", "test loss")


def both(value: float) -> dict[str, dict[str, float | None]]:
    return {name: {"barrier": value, "excess": None} for name in MEASURES}


def path(label: str, kind: str, cycle: int, value: float) -> dict[str, Any]:
    values = {name: [0.1, None, 0.2] for name in MEASURES}  # a point that was no number leaves a gap
    return {"label": label, "kind": kind, "cycle": cycle, "sparsity": 0.5, "values": values, "barriers": both(value)}


def made_up_results(shift: float = 0.0) -> dict[str, dict[str, Any]]:
    """Return what each kind of analysis might have stored, by name, as JSON."""
    row = {"cycle": 1, "sparsity": 0.5}
    trace = {"mean": 20.0 + shift, "standard_error": 1.0, "num_probes": 40, "converged": True}
    members = [{"accuracy": 0.9, "nll": 0.3}, {"accuracy": 0.8, "nll": 0.4}]
    apart = {"between": [[0, 2, 1], [2, 0, 1], [1, 1, 0]], "norm": 5.0}
    cell = {"iou": 0.5, "chance": 0.3, "beyond": 0.2}
    found: dict[str, dict[str, Any]] = {
        "hessian": {
            "examples": 40,
            "tolerance": 0.02,
            "max_probes": 100,
            "rows": [
                {**row, "trace": trace, "top_eigenvalues": [3.0, 2.0], "top_residuals": [0, 0], "least_eigenvalue": -0.1, "spectra": []}
            ],
        },
        "connectivity": {
            "lambdas": [0, 0.5, 1],
            "examples": 40,
            "paths": [path("cycle 0 to 1", "cycles", 1, 0.02 + shift), path("cycle 1, particles 0 and 1", "particles", 1, 0.01)],
        },
        "hull": {
            "samples": 2,
            "examples": 40,
            "rows": [
                {
                    **row,
                    "mixtures": [[0.5, 0.5], [0.2, 0.8]],
                    "values": {name: [0.1, 0.2] for name in MEASURES},
                    "corners": {name: [0.1, 0.3] for name in MEASURES},
                    "mean": dict.fromkeys(MEASURES, 0.15),
                    "barriers": both(0.01),
                }
            ],
        },
        "stability": {"lambdas": [0, 0.5, 1], "examples": 40, "paths": [path(f"two from {x}", x, 0, 0.1) for x in ("init", "ticket")]},
        "surface": {
            "grid": 3,
            "margin": 0.4,
            "examples": 40,
            "rows": [
                {
                    **row,
                    "particles": [[0, 0], [2, 0], [1, 2]],
                    "mean": [1, 0.7],
                    "average": [1, 0.8],
                    "num_averaged": 4,
                    "measures": list(MEASURES),
                }
            ],
        },
        "particles": {
            "rows": [{**row, "metric": "accuracy", "average": {"accuracy": 0.95}, "particles": members, "distances": apart}],
            "successive": [{"from": 0, "to": 1, "distance": 3.0, "norm": 5.0}],
        },
        "masks": {"rows": [{**row, "densities": {"a.weight": 0.5, "b.weight": 0.0}}] * 2, "overlap": [[cell, cell], [cell, cell]]},
        "calibration": {
            "rows": [
                {**row, "counts": [0, 3, 50], "confidence": [0, 0.5, 0.9], "accuracy": [0, 0.3, 0.9], "ece": 0.02, "temperature": 1.1}
                | {"metrics": {"nll": 0.3}}
            ]
        },
        "overlap": {"pairs": [{"runs": ["runs/a", "runs/b"], **row, **cell}]},
    }
    return {name: {"analysis": name, "run": RUN, **result} for name, result in found.items()}


ARRAYS: dict[str, dict[str, Any]] = {
    "hessian": {"cycle-1.eigenvalue": np.linspace(-1, 4, 50), "cycle-1.density": np.full(50, 0.2)},
    "surface": {"cycle-1.x": [0, 1, 2], "cycle-1.y": [0, 1, 2], **{f"cycle-1.{name}": np.arange(9.0).reshape(3, 3) for name in MEASURES}},
}


def add_results(run: Path, shift: float = 0.0, seed: int = 3) -> AnalysisStore:
    """Store made-up results of all kinds beside a run."""
    store = AnalysisStore(run)
    schemas: dict[str, Any] = {"overlap": OverlapResult, **{name: kind.Result for name, kind in analyses().items()}}
    for name, result in made_up_results(shift).items():
        store.write_result(name, msgspec.convert({**result, "run": {**RUN, "seed": seed}}, schemas[name]), ARRAYS.get(name))
    return store


def analysed(run: Path, shift: float = 0.0, seed: int = 0, method: str = "swamp") -> Path:
    made_up(run, [{"metrics": {"accuracy": 0.9}}] * 2, seed=seed, method=method)
    add_results(run, shift, seed)
    return run
