"""Runs that start from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

import swamp
from swamp.core.state import State
from swamp.export.formats.sparse import encode
from swamp.results.comparison import comparisons
from swamp.results.series import make_series
from swamp.results.stored_run import read_run
from swamp.runs.config import Config, build_config, config_hash
from swamp.runs.opening import RunRequest, open_task, prepare
from swamp.runs.stored import load_network
from swamp.store.records import read_rows
from tests.support.cli import call
from tests.support.runs import contents, iterate, without_checksums

Quick = Callable[..., Config]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run's last network as a sparse file and as a dense one."""
    folder = tmp_path_factory.mktemp("files")
    settings: dict[str, Any] = {
        "cycle.epochs": 1,
        "pruning.cycles": 2,
        "tasks.image.batch_size": 125,
        "tasks.image.model": "small-digits",
        "engine": "sequential",
    }
    loaded = swamp.run("digits", method="imp", out=folder / "run", **settings).load()
    (folder / "sparse").write_bytes(encode(State.of(loaded.model), loaded.mask))
    torch.save(loaded.model.state_dict(), folder / "dense")
    return folder


def test_a_sparse_file_gives_weights_and_first_mask(quick: Quick, files: Path, tmp_path: Path) -> None:
    given = swamp.load(files / "run")
    config = quick(method="imp", start=str(files / "sparse"), pruning__rewind="init")
    rows = list(iterate(config, tmp_path / "a"))
    assert [row.num_survivors for row in rows] == [1202, 601, 301]
    _, mask = load_network(tmp_path / "a", rows[0])
    assert mask.digest == given.mask.digest
    _, last = load_network(tmp_path / "a", rows[-1])
    assert mask.contains(last)
    state, _ = load_network(tmp_path / "a", rows[0])
    assert not any(state.parameters[name][~layer].any() for name, layer in mask.layers.items())
    init = open_task(config).init(None)  # type: ignore[arg-type]
    assert init.digest() == State.of(given.model).digest()
    assert swamp.load(tmp_path / "a").mask.digest == last.digest


def test_a_dense_file_starts_a_dense_run(quick: Quick, files: Path, tmp_path: Path) -> None:
    rows = list(iterate(quick(start=str(files / "dense")), tmp_path / "a"))
    assert [round(row.sparsity, 2) for row in rows] == [0, 0.5, 0.75]
    plain = list(iterate(quick(), tmp_path / "b"))
    assert {row.solution for row in rows}.isdisjoint(row.solution for row in plain)
    (table,) = comparisons(make_series(map(read_run, [tmp_path / "a", tmp_path / "b"])))
    assert len(table.rows) >= 3


def test_what_the_file_holds_decides_and_not_its_name(quick: Quick, files: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes((files / "sparse").read_bytes())
    one, two = (quick(method="imp", pruning__cycles=0, start=str(path)) for path in (files / "sparse", tmp_path / "copy"))
    rows = [without_checksums(iterate(config, tmp_path / name)) for name, config in (("a", one), ("b", two))]
    assert rows[0] == rows[1]
    names = ("results.json", "manifest.json")  # Checksums of rows cover the configuration, which names the file.
    found = [{name: data for name, data in contents(tmp_path / run).items() if name not in names} for run in ("a", "b")]
    assert found[0] == found[1]
    other = swamp.load(files / "run", cycle=1)
    (tmp_path / "copy").write_bytes(encode(State.of(other.model), other.mask))
    with pytest.raises(ValueError, match="began with another model"):
        list(iterate(two, tmp_path / "b"))


def test_workers_find_the_checkpoint_too(quick: Quick, files: Path, tmp_path: Path) -> None:
    runs = {}
    for engine in ("sequential", "processes"):
        changes = {"engines__processes__workers": 1} if engine == "processes" else {}
        config = quick(method="swamp", pruning__cycles=1, cycle__epochs=1, engine=engine, start=str(files / "sparse"), **changes)
        list(iterate(config, tmp_path / engine))
        runs[engine] = contents(tmp_path / engine)
    assert runs["sequential"] == runs["processes"]


def test_methods_that_leave_the_mask_are_refused(quick: Quick, files: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="method 'rigl' does not keep to the mask"):
        list(iterate(quick(method="rigl", start=str(files / "sparse")), tmp_path / "a"))
    with pytest.raises(ValueError, match="nowhere cannot be read"):
        list(iterate(quick(start="nowhere"), tmp_path / "a"))
    with pytest.raises(ValueError, match=r"~nobody-of-this-name/net cannot be read"):
        list(iterate(build_config("digits", {"start": "~nobody-of-this-name/net"}), tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_another_start_is_another_configuration(quick: Quick) -> None:
    assert config_hash(quick()) != config_hash(quick(start="x"))


def test_a_model_of_your_own_can_be_pruned_further(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    data = torch.randn(40, 6, generator=draw), torch.arange(40) % 2
    model = torch.nn.Linear(6, 2)
    settings: dict[str, Any] = {"cycle": {"epochs": 1}, "quiet": True, "engine": "sequential"}
    first = swamp.prune(model, data, data, out=tmp_path / "a", pruning={"cycles": 1, "prune_fraction": 0.5}, **settings)
    (tmp_path / "m").write_bytes(encode(State.of(first.model), first.mask))
    second = swamp.prune(
        model, data, data, out=tmp_path / "b", start=str(tmp_path / "m"), pruning={"cycles": 1, "prune_fraction": 0.5}, **settings
    )
    assert [row.num_survivors for row in read_rows(tmp_path / "b")] == [6, 3]
    assert first.mask.contains(second.mask)


def test_a_run_from_a_file_can_be_resumed_from_anywhere(
    quick: Quick, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begin(config: Config, directory: Path) -> None:
        (run,) = prepare([RunRequest(config, directory)])
        with run.begin():
            pass

    monkeypatch.chdir(files)
    config = quick(method="imp", pruning__cycles=0, cycle__epochs=1, start="sparse")
    begin(config, tmp_path / "run")
    begin(structs.replace(config, start="sparse"), tmp_path / "older")  # as earlier versions stored it
    begin(config, tmp_path / "older")
    begin(structs.replace(config, start="sparse", seed=1), tmp_path / "seed-1")
    (series,) = make_series([read_run(tmp_path / "run"), read_run(tmp_path / "seed-1")])  # They started from the same file.
    assert series.seeds == [0, 1]
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "resume", "run")[0] == 0
    assert len(read_rows(tmp_path / "run")) == 1
