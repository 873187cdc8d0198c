"""Run directories with made-up numbers, written without any training: all that tables, figures and the page read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from swamp.core.machine import versions
from swamp.core.pruning import rounded_share
from swamp.results.series import Series, make_series
from swamp.results.stored_run import read_run
from swamp.runs.config import Config, build_config, config_hash, resolve
from swamp.runs.setting_list import to_toml
from swamp.store.directory import Store
from swamp.store.records import RowRecord

LAYERS = ["stem.weight", "blocks.0.conv1.weight", "head.conv.weight"]


def read_series(directories: Iterable[Path]) -> list[Series]:
    return make_series(map(read_run, directories))


def made_up(directory: Path, rows: Sequence[dict[str, Any]], *, finished: bool = True, recipe: str = "digits", **settings: Any) -> Path:
    """Write a run whose rows have these fields. What a row does not give: its cycle is its index, its survivors are a half each time."""
    config = structs.replace(resolve(build_config("digits", {"device": "cpu", **settings})), recipe=recipe)
    return write_run(directory, config, [row_record(cycle, row, 1000) for cycle, row in enumerate(rows)], finished=finished)


def make_run(
    directory: Path,
    method: str = "swamp",
    seed: int = 0,
    *,
    cycles: int = 5,
    rows: int | None = None,
    epochs: int = 4,
    finished: bool = True,
    reach: float = 1.0,
    evaluated: Sequence[int] = (),
    **settings: Any,
) -> Path:
    """Write a run whose numbers follow from its method and seed, of several layers and with training curves.

    `rows`: only so many rows. `reach`: the survivors are this many times those asked for. `evaluated`: epochs, counted from 0, after which
    trainings were evaluated.
    """
    given = {name.replace("__", "."): value for name, value in settings.items()}
    fixed = {"method": method, "seed": seed, "pruning.cycles": cycles, "precision": "float32", "device": "cpu", "engine": "sequential"}
    config = build_config(given.pop("recipe", "digits"), {**fixed, **given})
    num_weights, num_particles = 10_000, 4 if method.startswith("swamp") else 1

    def measured(cycle: int, shift: float) -> dict[str, float]:
        error = 0.02 + 0.001 * (sum(map(ord, method)) % 7) + 0.002 * abs(cycle - 2) + 0.0003 * seed + shift
        return {"accuracy": 1 - error, "nll": 3 * error, "calibrated_nll": 2.9 * error, "ece": error / 3}

    results = []
    for cycle in range(cycles + 1 if rows is None else rows):
        survivors = min(round(reach * rounded_share(num_weights, config.pruning.density(cycle))), num_weights)
        fields: dict[str, Any] = {
            "num_survivors": survivors,
            "sparsity_of_all": 0.98 * (1 - survivors / num_weights),
            "metrics": measured(cycle, 0.0),
            "densities": {name: (survivors / num_weights) ** (index + 1) for index, name in enumerate(LAYERS)},
            "macs": 1e6 * survivors / num_weights,
            "cost": num_particles * 1e6 * (cycle + 1),
            "training_macs": num_particles * 1e11 * (cycle + 1),
            "solution": f"s{cycle}",
            "mask": f"m{cycle}",
            "particles": [f"p{cycle}-{particle}" for particle in range(num_particles)],
        }
        if num_particles > 1:
            fields["members"] = [measured(cycle, 0.001 * (particle + 1)) for particle in range(num_particles)]
        if config.method_module.selects:
            fields["selected_on"] = "validation"
        results.append(row_record(cycle, fields, num_weights))
    curves = [
        {"training": f"cycle {row.cycle}, particle {particle}", "epoch": epoch, "loss": math.exp(-epoch / 9), "learning_rate": 0.1}
        | ({"validation.accuracy": 0.5 + 0.1 * epoch, "validation.nll": 1 / (1 + epoch)} if epoch in evaluated else {})
        for row in results
        for particle in range(num_particles)
        for epoch in range(epochs)
    ]
    return write_run(directory, config, results, curves, finished=finished)


def row_record(cycle: int, given: dict[str, Any], num_weights: int) -> RowRecord:
    survivors = given.get("num_survivors", round(num_weights * 0.5**cycle))
    fields: dict[str, Any] = {
        "cycle": cycle,
        "sparsity": 1 - survivors / num_weights,
        "sparsity_of_all": 1 - survivors / num_weights,
        "num_survivors": survivors,
        "num_prunable": num_weights,
        "metric": "accuracy",
        "members": [],
        "densities": {"stem.weight": 0.5, "head.weight": 0.1},
        "empty_layers": [],
        "macs": 1e6,
        "cost": 1e9 * (cycle + 1),
        "training_macs": 1e12 * (cycle + 1),
        "solution": "s",
        "mask": "m",
        "particles": [],
        **given,
    }
    row = RowRecord(**fields)
    return structs.replace(row, checksum=row.expected_checksum())


def write_run(directory: Path, config: Config, rows: Sequence[RowRecord], curves: Sequence[dict[str, Any]] = (), *, finished: bool) -> Path:
    store = Store(directory)
    about = {"config_hash": config_hash(config), "seed": config.seed, "task": "t" * 40, "versions": versions()}
    store.write_header({"config": msgspec.to_builtins(config), **about})
    store.write_text("config.toml", to_toml(config))
    store.write_text("results.json", json.dumps(msgspec.to_builtins(rows), indent=1, sort_keys=True))
    store.write_text("metrics.jsonl", "".join(json.dumps(line, sort_keys=True) + "\n" for line in curves))
    store.log_timing({"what": "row 0", "seconds": 3.5})
    if finished:
        store.finish()
    return directory


def add_analyses(directory: Path) -> None:
    """What `swamp analyse` leaves."""
    analysis_store = directory / "analysis"
    analysis_store.mkdir()

    def write(name: str, value: Any) -> None:
        (analysis_store / f"{name}.json").write_text(
            json.dumps({"analysis": name, "run": {"recipe": "digits", "method": "swamp", "seed": 0}, **value})
        )

    lambdas = [index / 20 for index in range(21)]
    hill = [0.05 + 0.04 * x * (1 - x) for x in lambdas]
    rise = {"barrier": 0.01, "excess": 0.01}
    paths = [
        {
            "label": f"cycle {c} to {c + 1}",
            "kind": "cycles",
            "cycle": c,
            "sparsity": 0.5,
            "values": {"test loss": [v + c / 50 for v in hill]},
            "barriers": {"test loss": rise},
        }
        for c in range(3)
    ]
    between = {"label": "cycle 1, particles 0 and 1", "kind": "particles", "cycle": 1, "sparsity": 0.5}
    paths.append({**between, "values": {"test loss": [None, *hill[1:]]}, "barriers": {"test loss": rise}})
    write("connectivity", {"lambdas": lambdas, "examples": 1000, "paths": paths})
    rows = [{"cycle": c, "sparsity": 1 - 0.5**c} for c in range(4)]
    overlap = [[{"iou": 0.5 ** abs(a - b), "chance": 0.1, "beyond": 0.4 ** abs(a - b)} for b in range(4)] for a in range(4)]
    write("masks", {"rows": [{**row, "densities": dict.fromkeys(LAYERS, 1 - row["sparsity"])} for row in rows], "overlap": overlap})
    trace = {"mean": 464.0, "standard_error": 7.5, "num_probes": 40, "converged": True}
    spectrum = {"top_eigenvalues": [32.5, 9.0], "top_residuals": [0, 0], "least_eigenvalue": -1.0, "spectra": []}
    asked = {"examples": 1000, "tolerance": 0.02, "max_probes": 1000}
    write("hessian", {**asked, "rows": [{**rows[1], "trace": trace, **spectrum}]})
    axis = np.linspace(-4, 14, 21)
    grid = 0.05 + ((axis[:, None] - 4) ** 2 + (axis[None, :] - 5) ** 2) / 400
    arrays: dict[str, Any] = {"cycle-3.x": axis, "cycle-3.y": axis, "cycle-3.test loss": grid}
    np.savez(analysis_store / "surface.npz", **arrays)
    places = {"particles": [[0, 0], [10, 0], [5, 8]], "mean": [5, 8 / 3], "average": [5, 3.5]}
    plane = {**rows[3], **places, "num_averaged": 4, "measures": ["test loss"]}
    write("surface", {"grid": 21, "margin": 0.4, "examples": 1000, "rows": [plane]})


def add_overlap(directory: Path, *runs: Path) -> None:
    """What `swamp analyse --masks` of several runs leaves."""
    (directory / "analysis").mkdir(exist_ok=True)
    pairs = [
        {"runs": [str(first), str(second)], "cycle": c, "sparsity": 1 - 0.5**c, "iou": 0.7 / c, "chance": 0.1, "beyond": 0.6 / c}
        for first, second in combinations(runs, 2)
        for c in (1, 2, 3)
    ]
    (directory / "analysis" / "overlap.json").write_text(json.dumps({"analysis": "overlap", "pairs": pairs}))
