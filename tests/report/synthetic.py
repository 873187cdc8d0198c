"""Run directories without any training: what a report reads, and nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from swamp.core.pruning import rounded_share
from swamp.methods.method import selects
from swamp.runs.config import build_config, config_hash, to_toml
from swamp.runs.runner import versions
from swamp.store.directory import Store
from swamp.store.records import RowRecord

LAYERS = ["stem.weight", "blocks.0.conv1.weight", "head.conv.weight"]
NUM_WEIGHTS = 10_000


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
    **settings: Any,
) -> Path:
    """A run whose numbers follow from its method and seed. `rows`: only so many of them; `reach`: this factor of survivors too many."""
    given = {name.replace("__", "."): value for name, value in settings.items()}
    fixed = {"method": method, "seed": seed, "pruning.cycles": cycles, "precision": "float32", "device": "cpu", "engine": "sequential"}
    config = build_config(given.pop("recipe", "digits"), {**fixed, **given})
    store = Store(directory)
    directory.mkdir(parents=True)
    store.write_header(
        {
            "config": msgspec.to_builtins(config),
            "config_hash": config_hash(config),
            "seed": seed,
            "task": "t" * 40,
            "versions": versions(),
        }
    )
    store.write_text("config.toml", to_toml(config))
    skill = sum(map(ord, method)) % 7
    several = 4 if method.startswith("swamp") else 1
    results = []
    for cycle in range(cycles + 1 if rows is None else rows):
        survivors = min(round(reach * rounded_share(NUM_WEIGHTS, config.pruning.density(cycle))), NUM_WEIGHTS)

        def measured(shift: float, cycle: int = cycle) -> dict[str, float]:
            error = 0.02 + 0.001 * skill + 0.002 * abs(cycle - 2) + 0.0003 * seed + shift
            return {"accuracy": 1 - error, "nll": 3 * error, "calibrated_nll": 2.9 * error, "ece": error / 3}

        row = RowRecord(
            cycle=cycle,
            sparsity=1 - survivors / NUM_WEIGHTS,
            sparsity_of_all=0.98 * (1 - survivors / NUM_WEIGHTS),
            num_survivors=survivors,
            num_prunable=NUM_WEIGHTS,
            metric="accuracy",
            metrics=measured(0.0),
            members=[measured(0.001 * (particle + 1)) for particle in range(several)] if several > 1 else [],
            densities={name: (survivors / NUM_WEIGHTS) ** (index + 1) for index, name in enumerate(LAYERS)},
            empty_layers=[],
            macs=1e6 * survivors / NUM_WEIGHTS,
            cost=several * 1e6 * (cycle + 1),
            training_macs=several * 1e11 * (cycle + 1),
            solution=f"s{cycle}",
            mask=f"m{cycle}",
            particles=[f"p{cycle}-{particle}" for particle in range(several)],
            selected_on="validation" if selects(config.method_module) else msgspec.UNSET,
        )
        results.append(structs.replace(row, checksum=row.checked()))
    store.write_text("results.json", json.dumps(msgspec.to_builtins(results), indent=1, sort_keys=True))
    lines = [
        {"training": f"cycle {row.cycle}, particle {particle}", "epoch": epoch, "loss": math.exp(-epoch / 9), "learning_rate": 0.1}
        for row in results
        for particle in range(several)
        for epoch in range(epochs)
    ]
    store.write_text("metrics.jsonl", "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
    store.log_timing({"what": "row 0", "seconds": 3.5})
    if finished:
        store.finish()
    return directory


def add_analyses(directory: Path) -> None:
    """What `swamp analyse` leaves."""
    analysis_store = directory / "analysis"
    analysis_store.mkdir()

    def write(name: str, value: Any) -> None:
        (analysis_store / f"{name}.json").write_text(json.dumps({"analysis": name, "run": {"seed": 0}, **value}))

    lambdas = [index / 20 for index in range(21)]
    hill = [0.05 + 0.04 * x * (1 - x) for x in lambdas]
    paths = [
        {
            "label": f"cycle {c} to {c + 1}",
            "kind": "cycles",
            "cycle": c,
            "sparsity": 0.5,
            "values": {"test loss": [v + c / 50 for v in hill]},
        }
        for c in range(3)
    ]
    paths.append({"label": "cycle 1, particles 0 and 1", "kind": "particles", "values": {"test loss": [None, *hill[1:]]}})
    write("connectivity", {"lambdas": lambdas, "examples": 1000, "paths": paths})
    rows = [{"cycle": c, "sparsity": 1 - 0.5**c} for c in range(4)]
    overlap = [[{"iou": 0.5 ** abs(a - b), "chance": 0.1, "beyond": 0.4 ** abs(a - b)} for b in range(4)] for a in range(4)]
    write("masks", {"rows": rows, "overlap": overlap})
    trace = {"mean": 464.0, "standard_error": 7.5, "num_probes": 40, "converged": True}
    write("hessian", {"examples": 1000, "rows": [{**rows[1], "trace": trace, "top_eigenvalues": [32.5, 9.0]}]})
    axis = np.linspace(-4, 14, 21)
    grid = 0.05 + ((axis[:, None] - 4) ** 2 + (axis[None, :] - 5) ** 2) / 400
    np.savez(analysis_store / "surface.npz", **{"cycle-3.x": axis, "cycle-3.y": axis, "cycle-3.test loss": grid})
    places = {"particles": [[0, 0], [10, 0], [5, 8]], "mean": [5, 8 / 3], "average": [5, 3.5]}
    write("surface", {"grid": 21, "rows": [{**rows[3], **places, "measures": ["test loss"]}]})


def add_overlap(directory: Path, first: Path, second: Path) -> None:
    """What `swamp analyse --masks` of several runs leaves."""
    (directory / "analysis").mkdir(exist_ok=True)
    pairs = [
        {"runs": [str(first), str(second)], "cycle": c, "sparsity": 1 - 0.5**c, "iou": 0.7 / c, "chance": 0.1, "beyond": 0.6 / c}
        for c in (1, 2, 3)
    ]
    (directory / "analysis" / "overlap.json").write_text(json.dumps({"analysis": "overlap", "pairs": pairs}))
