"""Tables of runs: their numbers stand in one unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from swamp.report.tables import ensemble_table, run_table
from swamp.results.ensemble import EnsembleRow
from swamp.results.stored_run import read_run
from tests.support.made_up_runs import made_up


@pytest.mark.parametrize(
    ("macs", "cost", "heads", "cells"),
    [
        ((215e6, 4.02e6), (215e6, 1204e6), ("MMACs", "cost MMACs"), (("215.00", "215.00"), ("4.02", "1,204.00"))),
        ((370e3, 90e3), (370e3, 5.2e6), ("kMACs", "cost kMACs"), (("370.00", "370.00"), ("90.00", "5,200.00"))),
    ],
)
def test_a_network_and_what_it_cost_are_counted_in_one_unit(
    macs: tuple[float, float],
    cost: tuple[float, float],
    heads: tuple[str, str],
    cells: tuple[tuple[str, str], tuple[str, str]],
    tmp_path: Path,
) -> None:
    rows = [{"macs": one, "cost": whole, "metrics": {"accuracy": 0.9}} for one, whole in zip(macs, cost, strict=True)]
    table = run_table(read_run(made_up(tmp_path / "run", rows)))
    assert tuple(table.header[-2:]) == heads
    assert tuple(tuple(row[-2:]) for row in table.rows) == cells


def test_the_unit_of_an_ensemble_fits_its_networks() -> None:
    row = EnsembleRow(cycle=0, sparsity=0.0, metrics={"accuracy": 0.9}, members=[{"accuracy": 0.9}, {"accuracy": 0.8}], macs=2 * 370e3)
    table = ensemble_table([row])
    assert (table.header[-1], table.rows[0][-1]) == ("kMACs of all", "740.00")


def test_notes_below_the_table_of_a_run_say_of_which_cycles_they_are(tmp_path: Path) -> None:
    emptied = [[], ["a"], ["a"], ["a", "b"]]
    notes = [["of all", "of two"], ["of all"], ["of all"], ["of all", "of two"]]
    row = {"metrics": {"accuracy": 0.9}}
    rows = [{**row, "empty_layers": layers, "notes": texts} for layers, texts in zip(emptied, notes, strict=True)]
    found = run_table(read_run(made_up(tmp_path / "run", rows, method="snip"))).note.splitlines()
    assert found == ["cycles 1–3: empty layers: a", "cycle 3: empty layers: b", "of all", "cycles 0, 3: of two"]
