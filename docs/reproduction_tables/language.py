"""Tables of MiniLM on MRPC and RTE."""

from __future__ import annotations

import statistics

import msgspec

from docs.reproduction_tables.stored import RESULTS, table
from swamp.drawing.numbers import percent
from swamp.store.records import RowRecord

PAGE = "text"


def text_rows(task: str) -> list[tuple[RowRecord, RowRecord]]:
    """Return the rows of IMP and SWAMP with MiniLM at every sparsity."""
    files = [RESULTS / "minilm" / f"{task}-{method}.json" for method in ("imp", "swamp")]
    return list(zip(*(msgspec.json.decode(file.read_bytes(), type=list[RowRecord]) for file in files), strict=True))


def minilm(task: str, metric: str, name: str, test_set: str = "") -> str:
    """MiniLM: the metric that counts and NLL on the development set, SWAMP's particles, and the metric on a test set if there is one."""
    rows = []
    for imp, swamp in text_rows(task):
        ours = [cell for row in (imp, swamp) for cell in (percent(row.metrics[metric]), f"{row.metrics['nll']:.3f}")]
        on_test = [percent(row.metrics[f"{test_set}.{metric}"]) for row in (imp, swamp)] if test_set else []
        dense = "0" if imp.sparsity == 0 else percent(imp.sparsity)
        rows.append([dense, *ours, percent(statistics.fmean(one[metric] for one in swamp.members)), *on_test])
    head = [f"{task.upper()}, sparsity %", f"IMP {name} %", "IMP NLL", f"SWAMP {name} %", "SWAMP NLL", f"particles' mean {name} %"]
    return table(head + ([f"test set: IMP {name} %", f"test set: SWAMP {name} %"] if test_set else []), rows)


def mrpc() -> str:
    return minilm("mrpc", "f1", "F1", "mrpc-test")


def rte() -> str:
    return minilm("rte", "accuracy", "accuracy")
