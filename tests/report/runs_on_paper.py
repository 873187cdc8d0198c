"""Run directories that nobody trained: results that a test writes down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from swamp.runs.config import build_config, resolve
from swamp.store.directory import Store
from swamp.store.records import RowRecord

NUM_WEIGHTS = 1000


def made_up(out: Path, rows: Sequence[dict[str, Any]], *, finished: bool = True, recipe: str = "digits", **settings: Any) -> Path:
    """A run whose rows have these fields; a row's cycle is its place, its survivors a half each time, its metrics what is given."""
    config = structs.replace(resolve(build_config("digits", {"device": "cpu", **settings})), recipe=recipe)
    store = Store(out)
    store.write_header({"config": msgspec.to_builtins(config), "config_hash": "x", "seed": config.seed, "task": "t", "versions": {}})
    results = []
    for cycle, given in enumerate(rows):
        survivors = given.get("num_survivors", round(NUM_WEIGHTS * 0.5**cycle))
        fields: dict[str, Any] = {
            "cycle": cycle,
            "sparsity": 1 - survivors / NUM_WEIGHTS,
            "sparsity_of_all": 1 - survivors / NUM_WEIGHTS,
            "num_survivors": survivors,
            "num_prunable": NUM_WEIGHTS,
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
        results.append(structs.replace(row, checksum=row.checked()))
    (out / "results.json").write_text(json.dumps(msgspec.to_builtins(results)))
    if finished:
        (out / "metrics.jsonl").touch()
        store.finish()
    return out
