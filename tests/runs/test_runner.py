from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from swamp.core.cost import masked_macs
from swamp.methods import methods
from swamp.runs.checks import require_empty_or_run
from swamp.runs.config import Config
from swamp.runs.opening import open_task
from swamp.runs.plan import make_plan
from swamp.runs.stored import read_config
from swamp.store.directory import Store
from swamp.store.finding import cache_part
from swamp.store.objects import Dropped
from swamp.store.records import RowRecord, read_rows
from swamp.tasks.image import ImageTask
from tests.support.listeners import Watcher
from tests.support.runs import contents, iterate

Make = Callable[..., Config]


class Remembering(Watcher):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from swamp.runs.config import build_config
    from tests.support.runs import QUICK

    directory = tmp_path_factory.mktemp("whole") / "run"
    list(iterate(build_config("digits", QUICK), directory))
    return directory


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def test_the_directory_is_as_documented(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    files = {".lock", "run.json", ".run.json", "config.toml", "results.json", "metrics.jsonl", "timing.jsonl", "manifest.json"}
    assert names == files | {"objects", "cycle-00", "cycle-01", "cycle-02"}
    header = Store(whole).header()
    assert header is not None
    assert set(header) == {"config", "config_hash", "format_version", "seed", "task", "versions", "device", "layers", "row_format"}
    for cycle in range(3):
        found = {path.name for path in (whole / f"cycle-{cycle:02d}").iterdir()}
        assert found == {"mask.safetensors", "average.safetensors", "particle-0.safetensors", "particle-1.safetensors"}
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["training"] for line in lines[:3]] == ["ticket", "cycle 0, particle 0", "cycle 0, particle 0"]
    assert len(lines) == 1 + 3 * 2 * 2
    assert all(json.loads(line)["seconds"] >= 0 for line in (whole / "timing.jsonl").read_text().splitlines())


def test_array_files_hold_one_metadata_key_and_nothing_of_how_they_were_made(whole: Path) -> None:
    for path in whole.rglob("*.safetensors"):
        with safe_open(path, "pt") as file:
            (text,) = file.metadata().values()
        assert not any(word in text for word in (str(whole), "sequential", "time", "host"))


def test_results_are_what_the_objects_say(whole: Path) -> None:
    rows, config, store = read_rows(whole), read_config(whole), Store(whole)
    task = open_task(config)
    total = 0.0
    for row in rows:
        mask = store.load_mask(row.mask)
        assert mask is not None
        assert row.sparsity == 1 - row.num_survivors / row.num_prunable
        assert row.macs == masked_macs(task.macs, mask)
        total += 2 * row.macs
        assert row.cost == pytest.approx(total)
        for key, metrics in [(row.solution, row.metrics), *zip(row.particles, row.members, strict=True)]:
            model = task.model()
            store.load_state(key).into(model)
            assert task.evaluate(model, "test") == metrics
    # ticket: 1 dense epoch; cycles: 2 epochs of 2 particles
    assert rows[-1].training_macs == pytest.approx(3 * 125 * (135_840 + 2 * total))


def test_a_finished_run_says_so_and_is_left_alone(copy: Path) -> None:
    before = contents(copy)
    listener = Remembering()
    assert list(iterate(read_config(copy), copy, listener=listener)) == read_rows(copy)
    assert listener.said == [f"{copy} is finished; nothing to do"]
    assert listener.trained == 0
    assert contents(copy) == before


def test_a_run_from_another_machine_finds_its_data_here(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    config = quick(tasks__image__data=str(there))
    next(iter(iterate(config, tmp_path / "run")))
    monkeypatch.setenv("SWAMP_DATA", str(here))
    assert read_config(tmp_path / "run").tasks["image"]["data"] == str(there)
    there.rmdir()
    moved = read_config(tmp_path / "run")
    assert moved.tasks["image"]["data"] == ""  # which is the environment's
    monkeypatch.delenv("SWAMP_DATA")
    assert read_config(tmp_path / "run").tasks["image"]["data"] == str(there)  # for the sentence that says what is missing
    assert len(list(iterate(moved, tmp_path / "run"))) == 3  # it goes on


def test_another_configuration_is_refused_with_the_differing_keys(copy: Path, quick: Make) -> None:
    before = contents(copy)
    with pytest.raises(ValueError, match=r"cycle\.epochs \(2 there, 3 here\), seed \(0 there, 1 here\)"):
        list(iterate(quick(seed=1, cycle__epochs=3), copy))
    assert contents(copy) == before
    list(iterate(quick(engine="processes", keep="last", notes="hello"), copy))  # none of these decide numbers


def test_what_became_of_a_finished_run_is_said_in_short(copy: Path) -> None:
    store, num_files = Store(copy), len(json.loads((copy / "manifest.json").read_text())["value"])
    assert store.altered() == ""
    with open(copy / "metrics.jsonl", "a") as file:
        file.write("{}\n")
    assert store.altered() == "1 changed (metrics.jsonl)"
    shutil.rmtree(copy / "objects")  # and the links lead nowhere
    words = store.altered()
    assert words.startswith(f"{num_files - 2} of {num_files} files went missing (")
    assert words.endswith(", …) and 1 changed (metrics.jsonl)")


@pytest.mark.parametrize("victim", ["particle", "average", "mask", "evaluation", "results.json", "metrics.jsonl", "manifest.json", "link"])
@pytest.mark.parametrize("how", ["truncated", "altered", "missing"])
def test_damage_to_a_finished_run_is_named_and_repaired(whole: Path, copy: Path, victim: str, how: str) -> None:
    row = read_rows(copy)[1]
    records = {path for path in (copy / "objects").glob("*.json") if '"nll"' in path.read_text()}
    path = {
        "particle": copy / "objects" / f"{row.particles[0]}.safetensors",
        "average": copy / "objects" / f"{row.solution}.safetensors",
        "mask": copy / "objects" / f"{row.mask}.safetensors",
        "evaluation": sorted(records)[0],
        "link": copy / "cycle-01" / "average.safetensors",
    }.get(victim, copy / victim)
    data = path.read_bytes()
    path.unlink()
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "altered":
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    listener = Remembering()
    list(iterate(read_config(copy), copy, listener=listener))
    if (victim, how) != ("manifest.json", "missing"):
        assert any(path.name in text for text in listener.said)
    assert contents(copy) == contents(whole)
    if victim != "particle":
        assert listener.trained == 0  # what is sound is used
    else:
        assert listener.trained == 2


def test_damage_below_a_damaged_row_is_recomputed_even_if_it_was_dropped(quick: Make, tmp_path: Path) -> None:
    """keep = last drops what a lost average is made of; it is made again from the start."""
    config = quick(keep="last")
    rows = list(iterate(config, tmp_path / "run"))
    before = contents(tmp_path / "run")
    assert {path.stem for path in (tmp_path / "run" / "objects").glob("*.safetensors")} >= {rows[-1].solution}
    (tmp_path / "run" / "objects" / f"{rows[-1].solution}.safetensors").unlink()
    list(iterate(config, tmp_path / "run"))
    assert contents(tmp_path / "run") == before
    (tmp_path / "run" / "objects" / f"{rows[1].mask}.safetensors").unlink()  # pruned from an average that is gone too
    list(iterate(config, tmp_path / "run"))
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(("keep", "states"), [("all", 3 * 3), ("averages", 3), ("last", 1)])
def test_keep(quick: Make, tmp_path: Path, whole: Path, keep: str, states: int) -> None:
    rows = list(iterate(quick(keep=keep), tmp_path / "run"))
    assert rows == read_rows(whole)
    weights = [path for path in (tmp_path / "run" / "objects").glob("*.safetensors") if path.stat().st_size > 15_000]
    assert len(weights) == states + 2  # init and ticket
    links = sorted(str(p.relative_to(tmp_path / "run")) for p in (tmp_path / "run").glob("cycle-*/*") if "mask" not in p.name)
    assert len(links) == states
    assert all((tmp_path / "run" / link).exists() for link in links)
    assert "cycle-02/average.safetensors" in links


def test_weights_are_dropped_only_when_the_next_mask_is_durable(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Store.drop

    def drop(self: Store, key: str) -> None:
        rows = read_rows(self.root)
        owner = next(row for row in rows if key in (*row.particles, row.solution))
        if owner.cycle < 2:
            progress = [self.load_mask(path.stem) for path in self.objects.glob("*.safetensors") if path.stat().st_size < 15_000]
            assert any(mask and mask.num_survivors < owner.num_survivors for mask in progress)
        real(self, key)

    monkeypatch.setattr(Store, "drop", drop)
    list(iterate(quick(keep="last"), tmp_path / "run"))


def test_a_method_that_needs_more_says_so_at_the_start(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods(), "imp", replace(methods()["imp"], needs="averages"))
    with pytest.raises(ValueError, match="method 'imp' needs keep = 'averages' or more, not 'last'"):
        list(iterate(quick(method="imp", keep="last"), tmp_path / "run"))
    list(iterate(quick(method="imp", keep="averages", pruning__cycles=0), tmp_path / "run"))


def test_runs_share_through_a_cache(quick: Make, tmp_path: Path) -> None:
    watchers = [Watcher(), Watcher(), Watcher()]
    list(iterate(quick(pruning__cycles=1), tmp_path / "a", tmp_path / "cache", watchers[0]))
    list(iterate(quick(pruning__cycles=1), tmp_path / "b", tmp_path / "cache", watchers[1]))
    list(iterate(quick(pruning__cycles=1, method="imp"), tmp_path / "c", tmp_path / "cache", watchers[2]))
    assert [watcher.trained for watcher in watchers] == [1 + 2 * 2 * 2, 0, 2 * 2]  # IMP takes the ticket
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    list(iterate(quick(pruning__cycles=1, method="imp"), tmp_path / "d"))
    assert contents(tmp_path / "c") == contents(tmp_path / "d")


def test_foreign_directories_are_not_touched(quick: Make, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"is not empty and holds no run \(thesis.tex"):
        list(iterate(quick(), tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex"]


def test_a_run_that_another_rank_begins_meanwhile_is_not_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is seen first: the directory before the other rank has written to it, or after."""

    def begins(directory: Path) -> Iterator[Path]:
        for name in ("run.json", "results.json"):
            (directory / name).touch()
        return (directory / name for name in os.listdir(directory))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", begins)
        require_empty_or_run(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(ValueError, match=r"holds no run \(results.json"):
        require_empty_or_run(tmp_path)


def test_a_plan_foresees_the_run(quick: Make, whole: Path) -> None:
    config, rows = read_config(whole), read_rows(whole)
    plan = make_plan(config, open_task(config))
    assert [row.mask.num_survivors for row, _ in plan.rows] == [row.num_survivors for row in rows]
    assert [len(jobs) for _, jobs in plan.rows] == [2, 2, 2]
    assert plan.num_epochs == 1 + 3 * 2 * 2
    assert plan.forward_macs[0] == rows[0].cost
    assert plan.training_macs[0] == rows[0].training_macs
    assert max(plan.rows[1][0].mask.densities.values()) == pytest.approx(0.5, abs=0.02)


def test_results_survive_a_round_trip(whole: Path) -> None:
    assert all(isinstance(row, RowRecord) for row in read_rows(whole))
    assert read_rows(whole.parent) == []
    (whole.parent / "results.json").write_text("[{}]")
    with pytest.raises(ValueError, match="is damaged"):
        read_rows(whole.parent)


def test_an_altered_result_is_refused(copy: Path) -> None:
    path = copy / "results.json"
    rows = json.loads(path.read_text())
    rows[1]["metrics"]["accuracy"] = 0.999
    path.write_text(json.dumps(rows))
    with pytest.raises(ValueError, match="was altered at cycle 1"):
        read_rows(copy)
    list(iterate(read_config(copy), copy))
    assert read_rows(copy)[1].metrics["accuracy"] < 0.999


def test_a_finished_run_is_not_written_to(copy: Path, quick: Make) -> None:
    (copy / "work").mkdir()  # killed after the manifest, before the very end
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    list(iterate(quick(keep="last", notes="other"), copy))
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    assert not (copy / "work").exists()


@pytest.mark.parametrize("victim", ["mask-1", "mask-2", "last", "ticket"])
@pytest.mark.parametrize("rewind", ["weights", "lr"])
def test_losses_are_made_good_through_whatever_was_dropped(quick: Make, tmp_path: Path, victim: str, rewind: str) -> None:
    config = quick(method="imp", keep="last", pruning__rewind=rewind, pruning__cycles=3, cycle__epochs=1)
    rows = list(iterate(config, tmp_path / "run"))
    before = contents(tmp_path / "run")
    ticket = next(
        path.stem
        for path in (tmp_path / "run" / "objects").glob("*.safetensors")
        if path.stat().st_size > 15_000 and path.stem != rows[-1].solution
    )
    key = {"mask-1": rows[1].mask, "mask-2": rows[2].mask, "last": rows[3].solution, "ticket": ticket}[victim]
    (tmp_path / "run" / "objects" / f"{key}.safetensors").unlink()
    list(iterate(config, tmp_path / "run"))
    assert contents(tmp_path / "run") == before


def test_pruning_must_leave_something(quick: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of 4808 weights would survive at cycle 2"):
        list(iterate(quick(pruning__prune_fraction=0.999), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_bf16_reaches_training_refresh_and_evaluation(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[bool]] = {"loss": set(), "evaluate": set()}
    for name in seen:
        real = getattr(ImageTask, name)

        def spy(self: ImageTask, *arguments: object, name: str = name, real: Callable[..., object] = real) -> object:
            seen[name].add(torch.is_autocast_enabled("cpu"))
            return real(self, *arguments)

        monkeypatch.setattr(ImageTask, name, spy)
    settings = {"pruning__cycles": 0, "ticket__epochs": 0, "cycle__epochs": 1, "tasks__image__model": "wrn10-1"}
    list(iterate(quick(precision="bf16", **settings), tmp_path / "bf16"))
    assert seen == {"loss": {True}, "evaluate": {True}}
    for found in seen.values():
        found.clear()
    list(iterate(quick(precision="float32", **settings), tmp_path / "float32"))
    assert seen == {"loss": {False}, "evaluate": {False}}


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyError("weight"), "KeyError: 'weight'"),
        (RuntimeError("CUDA error\nand many lines more"), "RuntimeError: CUDA error"),
        (AssertionError(), "AssertionError"),
        (Dropped("its weights were dropped"), "its weights were dropped"),
        (ValueError("3 is not 4"), "3 is not 4"),
    ],
)
def test_what_ended_a_run_is_kept_in_a_line(
    quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(ImageTask, "loss", fail)
    with pytest.raises(type(error)):
        list(iterate(quick(), tmp_path / "run"))
    assert Store(tmp_path / "run").journal.failure() == why


def test_asking_for_a_finished_run_again_brings_nothing_back_from_the_cache(quick: Callable[..., Config], tmp_path: Path) -> None:
    config = quick(method="imp", keep="last")
    list(iterate(config, tmp_path / "run", tmp_path / "cache"))
    before = contents(tmp_path / "run")
    list(iterate(config, tmp_path / "run", tmp_path / "cache"))
    assert contents(tmp_path / "run") == before


def test_weights_that_a_cache_knows_but_does_not_hold_are_made_again(quick: Make, tmp_path: Path) -> None:
    """A cache filled from a run that has dropped its particles: a run with one particle prunes the first of them."""
    few = quick(pruning__cycles=1, keep="averages")
    list(iterate(few, tmp_path / "two"))
    shutil.copytree(tmp_path / "two" / "objects", cache_part(tmp_path / "cache", "cpu") / "objects")
    again, one = Watcher(), Watcher()
    list(iterate(few, tmp_path / "again", tmp_path / "cache", again))
    assert again.trained == 0
    list(iterate(quick(pruning__cycles=1, methods__swamp__particles=1), tmp_path / "one", tmp_path / "cache", one))
    assert one.trained == 2 + 2  # epochs of the first particle, and of the sparse network
