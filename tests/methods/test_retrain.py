"""Masks of one method, weights of another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swamp.engines.engine import Progress
from swamp.runs.config import Config, resolve
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import open_task
from swamp.runs.plan import Plan, make_plan
from swamp.runs.progress import Listener
from swamp.store.directory import Store
from tests.support.runs import iterate, without_checksums

Make = Callable[..., Config]


def retrain(quick: Make, masks: str, training: str, **changes: Any) -> Config:
    own = {"masks": masks, "training": training, "particles": 2}
    return quick(method="retrain", **{f"methods.retrain.{name}": value for name, value in own.items()}, **changes)


def plan_of(config: Config) -> Plan:
    config = resolve(config)
    return make_plan(config, open_task(config))


def test_the_four_cells_share_masks_trainings_and_one_ticket(quick: Make, tmp_path: Path) -> None:
    short = {"pruning__cycles": 1}
    imp = list(iterate(quick(method="imp", **short), tmp_path / "imp", tmp_path / "cache"))
    swamp = list(iterate(quick(**short), tmp_path / "swamp", tmp_path / "cache"))
    found = {
        (masks, training): list(iterate(retrain(quick, masks, training, **short), tmp_path / f"{masks}-{training}", tmp_path / "cache"))
        for masks in ("imp", "swamp")
        for training in ("sgd", "swamp")
    }
    # where finder and trainer are one, these are its rows, to the last number
    assert without_checksums(found["imp", "sgd"]) == without_checksums(imp)
    assert without_checksums(found["swamp", "swamp"]) == without_checksums(swamp)
    for training in ("sgd", "swamp"):
        assert [row.mask for row in found["imp", training]] == [row.mask for row in imp]
        assert [row.mask for row in found["swamp", training]] == [row.mask for row in swamp]
    assert imp[1].mask != swamp[1].mask
    # dense, the masks are one and so are the trainings
    assert found["swamp", "sgd"][0].solution == imp[0].solution
    assert found["imp", "swamp"][0].solution == swamp[0].solution
    assert found["imp", "swamp"][1].solution not in {row.solution for row in (*imp, *swamp)}
    # a row costs its mask and one training under it
    for before, row in zip(imp, found["imp", "swamp"], strict=True):
        assert row.cost == pytest.approx(before.cost + 2 * row.macs)
    for before, row in zip(swamp, found["swamp", "sgd"], strict=True):
        assert row.cost == pytest.approx(before.cost + row.macs)
    assert len(found["imp", "swamp"][1].members) == 2
    assert found["swamp", "sgd"][1].members == []
    # the ticket is counted, and once: every cycle here is as long as two tickets
    dense = imp[0].macs
    steps = imp[0].training_macs / dense / 3  # ticket and dense cycle
    assert found["imp", "swamp"][0].training_macs == pytest.approx(3 * dense * steps / 3 * (1 + 2 + 2 * 2))


def test_no_two_trainings_have_one_name(quick: Make, tmp_path: Path) -> None:
    """The first particle has the noise of the training that found the mask; charts and trackers tell trainings by their names."""
    labels: set[str] = set()

    class Names(Listener):
        def epoch(self, progress: Progress) -> None:
            labels.add(progress.label)

    list(iterate(retrain(quick, "imp", "swamp", pruning__cycles=1), tmp_path / "run", listener=Names()))
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    epochs = [(line["training"], line["epoch"]) for line in lines]
    assert len(set(epochs)) == len(epochs)
    assert {training for training, _ in epochs} == labels
    found, retrained = {f"cycle {c}, particle 0" for c in (0, 1)}, {f"cycle {c}, particle {n}" for c in (0, 1) for n in (0, 1)}
    assert labels == {"ticket", *found, *(f"retrained, {name}" for name in retrained)}


@pytest.mark.parametrize("rewind", ["weights", "lr"])
def test_nothing_is_kept_of_what_found_the_masks(quick: Make, tmp_path: Path, rewind: str) -> None:
    """Averages that belong to no row are dropped as trainings are."""
    config = retrain(quick, "swamp", "sgd", pruning__cycles=1, pruning__rewind=rewind, keep="last")
    rows = list(iterate(config, tmp_path / "run"))
    store = Store(tmp_path / "run")
    init = JobMaker(resolve(config), open_task(config)).init_key
    weights = {path.stem for path in store.objects.glob("*.safetensors")} - {row.mask for row in rows}
    assert len(weights - {init, rows[-1].solution}) == 1  # the ticket


def test_learning_rate_rewinding_starts_where_the_masks_were_found(quick: Make) -> None:
    for rewind, same in (("lr", True), ("weights", False)):
        plan = plan_of(retrain(quick, "imp", "swamp", pruning__rewind=rewind))
        found = [jobs[0].key for _, jobs in plan.rows]  # IMP's trainings come first
        starts = {job.start for job in plan.rows[2][1][1:]}
        assert (starts == {found[1]}) is same
        assert len(plan.rows[2][1]) == 3


def test_imp_may_train_longer_from_the_same_ticket(quick: Make) -> None:
    plain, longer = (plan_of(quick(method="imp", **{"methods.imp.length": length})) for length in (1.0, 4.0))
    assert plain.ticket is not None
    assert longer.ticket is not None
    assert longer.ticket.key == plain.ticket.key
    assert [job.num_epochs for job in longer.jobs] == [1, 8, 8, 8]
    assert [job.num_epochs for job in plain.jobs] == [1, 2, 2, 2]
    assert plan_of(quick(method="imp")).jobs[-1].key == plain.jobs[-1].key
