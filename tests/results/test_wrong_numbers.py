"""Files of a run that are not its own, or not as they were written: no command shows their numbers, and each that is left out is named."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swamp.analyses import analyses
from swamp.analyses.analysis import DamagedResult, read_stored
from swamp.results.stored_run import read_run
from swamp.store.analysis_store import AnalysisStore
from swamp.store.directory import Store
from swamp.store.files import Damaged
from swamp.store.finding import runs_in
from swamp.store.formats import decode_npz, encode_arrays, encode_json, encode_npz
from swamp.store.records import ROW_FORMAT, read_rows
from swamp.training.train import Checkpoint
from tests.support.analyses import add_results, analysed
from tests.support.cli import FLAGS, call, status_of
from tests.support.made_up_runs import make_run

NESTED = "[" * 100_000


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three finished runs that differ in their seed."""
    root = tmp_path_factory.mktemp("seeds") / "group"
    assert status_of("run", *FLAGS, "--seeds", "0,1,2", "--out", root, "--quiet") == 0
    return root


@pytest.fixture
def group(seeds: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seeds, tmp_path / "group", symlinks=True))


def damage_results(group: Path) -> Path:
    """Give seed-1 the rows of seed-0."""
    shutil.copy(group / "seed-0" / "results.json", group / "seed-1" / "results.json")
    return group / "seed-1"


# -- checkpoints --------------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_training_is_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)
    tensors = {"parameter/w": torch.ones(3)}
    store.write_checkpoint("one", Checkpoint(tensors, 2, 1, [{"epoch": 1, "loss": 0.25}]))
    assert store.read_checkpoint("one") is not None
    assert capsys.readouterr().err == ""
    shutil.copy(tmp_path / "work" / "one.checkpoint", tmp_path / "work" / "two.checkpoint")
    assert store.read_checkpoint("two") is None
    assert "two.checkpoint is damaged (it is another object); the training starts over" in capsys.readouterr().err
    assert list(store.checkpoint_metas()) == ["one"]
    nameless = {"epoch": 2, "num_averaged": 1, "history": [], "label": "", "num_epochs": 3}  # as before checkpoints had keys
    for meta in (nameless, {"key": "two"}, {**nameless, "key": "two", "epoch": "three"}):
        (tmp_path / "work" / "two.checkpoint").write_bytes(encode_arrays(tensors, meta))
        assert store.read_checkpoint("two") is None
        assert "the training starts over" in capsys.readouterr().err


# -- rows ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["compare", "figure error", "report", "ensemble", "show"])
def test_another_runs_results_are_named_and_left_out(
    command: str, group: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    damaged = damage_results(group)
    status, shown, said = call(capsys, *command.split(), group)
    assert status == 0
    assert f"{damaged} is not shown: " in shown + said
    assert "results.json is damaged" in shown + said
    if command == "compare":
        assert "(n=2)" in shown
    status, shown, said = call(capsys, *command.split(), damaged)
    assert status == (2 if command == "ensemble" and "at least 2 runs" in said else 1)
    assert "results.json is damaged" in said


def test_no_network_is_exported_or_loaded_by_another_runs_results(group: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = damage_results(group)
    status, _, said = call(capsys, "export", damaged, "--format", "safetensors", "--out", tmp_path / "x.safetensors")
    assert (status, (tmp_path / "x.safetensors").exists()) == (1, False)
    assert "results.json is damaged" in said
    with pytest.raises(Damaged):
        read_rows(damaged)


def test_rows_that_changed_with_their_checksum_are_not_those_of_the_manifest(tmp_path: Path) -> None:
    """A row of before rows named their run can be forged in itself; the manifest lists the file."""
    one, two = make_run(tmp_path / "one", "imp", 0), make_run(tmp_path / "two", "imp", 1)
    assert Store(one).header().get("row_format") is None  # type: ignore[union-attr]
    assert len(read_run(one).rows) == 6
    shutil.copy(one / "results.json", two / "results.json")
    with pytest.raises(Damaged, match="changed since the run was finished"):
        read_run(two)
    (two / "results.json").unlink()
    with pytest.raises(Damaged, match="it is missing"):
        read_run(two)


def test_rows_of_unfinished_runs_cannot_change_places(group: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in runs_in(group):
        (path / "manifest.json").unlink()
    assert Store(group / "seed-1").header()["row_format"] == ROW_FORMAT  # type: ignore[index]
    before = (group / "seed-1" / "results.json").read_bytes()
    damaged = damage_results(group)
    with pytest.raises(Damaged, match="or is of another run"):
        read_run(damaged)
    status, shown, _ = call(capsys, "compare", group)
    assert status == 0
    assert "(n=2)" in shown
    assert f"{damaged} is not shown" in shown
    assert status_of("resume", damaged, "--quiet") == 0
    assert (damaged / "results.json").read_bytes() == before


def test_weights_that_are_missing_do_not_matter_to_tables(group: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = call(capsys, "compare", group)
    shutil.rmtree(group / "seed-1" / "objects")
    assert call(capsys, "compare", group) == expected


def test_changed_curves_are_named_and_not_drawn(group: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = group / "seed-1" / "metrics.jsonl"
    shutil.copy(group / "seed-0" / "metrics.jsonl", path)
    status, _, said = call(capsys, "report", group, "--out", tmp_path / "page.html")
    assert status == 0
    assert f"{path} changed since the run was finished" in said
    assert list(read_run(group / "seed-1").epochs()) == []
    assert list(read_run(group / "seed-2").epochs())


@pytest.mark.parametrize("content", [NESTED, '[{"cycle": 1}]', "{}", '[{"\\ud800": 1}]', "\xff", '[{"checksum": ' + "9" * 5000 + "}]"])
def test_hostile_rows_get_a_sentence(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", finished=False)
    (run / "results.json").write_text(content, encoding="latin-1")
    status, _, said = call(capsys, "show", run)
    assert status == 1
    assert "results.json is damaged" in said


# -- run.json -----------------------------------------------------------------------------------------------------------------------


def test_run_json_has_a_copy_from_which_resuming_restores_it(group: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = group / "seed-0"
    good = (run / "run.json").read_bytes()
    assert (run / ".run.json").read_bytes() == good
    for spoil in ("missing", "torn", "nested"):
        (run / "run.json").unlink() if spoil == "missing" else (run / "run.json").write_text("{" if spoil == "torn" else NESTED)
        for command in ("show", "compare"):
            status, _, said = call(capsys, command, run)
            assert status == 0
            assert "its copy .run.json is used" in said
        status, _, said = call(capsys, "resume", run, "--plain")
        assert status == 0
        assert "its copy .run.json is used and was written in its place" in said
        assert (run / "run.json").read_bytes() == good
        status, _, said = call(capsys, "show", run)
        assert ".run.json" not in said
    (run / ".run.json").unlink()  # as in runs of before there was a copy
    assert call(capsys, "show", run)[::2] == (0, "")


def test_another_runs_header_is_not_taken_for_the_runs_own(group: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, before = group / "seed-1", (group / "seed-1" / "results.json").read_bytes()
    shutil.copy(group / "seed-0" / "run.json", run / "run.json")
    for command in ("show", "resume", "compare"):
        status, _, said = call(capsys, command, run)
        assert status == 1
        assert "it and its copy .run.json are of different runs" in said
    (run / ".run.json").unlink()  # Rows name their run too.
    status, _, said = call(capsys, "show", run)
    assert status == 1
    assert "or is of another run" in said
    assert (run / "results.json").read_bytes() == before


def test_a_copy_is_restored_when_an_unfinished_run_is_resumed(group: Path) -> None:
    run = group / "seed-0"
    (run / "manifest.json").unlink()
    (run / ".run.json").write_text("torn")
    assert status_of("resume", run, "--quiet") == 0
    assert (run / ".run.json").read_bytes() == (run / "run.json").read_bytes()


def test_without_any_run_json_a_sentence_says_what_can_be_done(group: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = group / "seed-0"
    for name in ("run.json", ".run.json"):
        (run / name).unlink()
    status, _, said = call(capsys, "resume", run)
    assert status == 2
    command = f"swamp run {run / 'config.toml'} --out ANOTHER"
    assert command in said
    assert status_of(*command.replace("ANOTHER", str(tmp_path / "again")).split()[1:], "--quiet") == 0
    assert read_rows(tmp_path / "again")[-1].metrics == read_rows_of(run)[-1]["metrics"]


def read_rows_of(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((run / "results.json").read_text())
    return rows


@pytest.mark.parametrize(
    "change",
    [{"versions": 3}, {"task": None}, {"config": [1]}, {"config": {"unknown": 1}}, {"config": {"tasks": {"image": 3}}}, {"problem": 1}],
)
def test_hostile_headers_get_a_sentence(change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    header = {**(Store(run).header() or {}), **change}
    for name in ("run.json", ".run.json"):
        (run / name).write_bytes(encode_json(header))
    for command in ("show", "resume", "compare"):
        status, _, said = call(capsys, command, run)
        assert status in (1, 2), command
        assert "Traceback" not in said


# -- analyses -----------------------------------------------------------------------------------------------------------------------


def spoil_json(path: Path, how: str) -> None:
    value = json.loads(path.read_text())
    if how == "number":
        value["rows"][0]["trace"]["mean"] = 1.0
    elif how == "no checksum":
        value["chfcksum"] = value.pop("checksum")
    path.write_text({"nested": NESTED, "empty": ""}.get(how) or json.dumps(value) if how != "empty" else "")


@pytest.mark.parametrize("how", ["number", "no checksum", "nested", "empty"])
def test_a_changed_analysis_is_named_and_left_out(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [analysed(tmp_path / "group" / f"seed-{seed}", seed=seed) for seed in (0, 1, 2)]
    path = runs[1] / "analysis" / "hessian.json"
    spoil_json(path, how)
    for command in (["figure", "hessian"], ["report"]):
        out = tmp_path / ("x.svg" if command[0] == "figure" else "x.html")
        status, _, said = call(capsys, *command, tmp_path / "group", "--out", out)
        assert status == 0
        assert f"{path} is damaged" in said + out.read_text()
    status, _, said = call(capsys, "figure", "hessian", runs[1], "--out", tmp_path / "y.svg")
    assert (status, (tmp_path / "y.svg").exists()) == (1, False)
    assert f"{path} is damaged" in said
    assert "swamp analyse" in said


def test_analyses_of_two_runs_cannot_change_places(tmp_path: Path) -> None:
    one, two = analysed(tmp_path / "one"), analysed(tmp_path / "two", seed=1)
    kind = analyses()["hessian"]
    assert read_stored(two, kind)
    for suffix in ("json", "npz"):
        shutil.copy(one / "analysis" / f"hessian.{suffix}", two / "analysis" / f"hessian.{suffix}")
    with pytest.raises(DamagedResult, match="its checksum is wrong, or it is of another run"):
        read_stored(two, kind)


def test_arrays_belong_to_their_result(tmp_path: Path) -> None:
    run = analysed(tmp_path / "run")
    store, path = AnalysisStore(run), run / "analysis" / "hessian.npz"
    assert set(store.read_result_arrays("hessian")) == {"cycle-1.eigenvalue", "cycle-1.density"}
    path.write_bytes(encode_npz({"cycle-1.eigenvalue": np.zeros(50), "cycle-1.density": np.zeros(50)}))
    with pytest.raises(Damaged, match=r"it does not belong to hessian.json"):
        store.read_result_arrays("hessian")
    stored = json.loads((run / "analysis" / "hessian.json").read_text())
    for name in ("checksum", "arrays"):
        del stored[name]
    (run / "analysis" / "hessian.json").write_text(json.dumps(stored))  # as before there were checksums
    arrays = store.read_result_arrays("hessian")
    with pytest.raises(Damaged, match=r"it lacks 'cycle-2.density'"):
        arrays["cycle-2.density"]


def test_a_damaged_ensemble_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    (run / "analysis").mkdir()
    (run / "analysis" / "ensemble-2.json").write_text(NESTED)
    status, _, said = call(capsys, "figure", "error", run, "--out", tmp_path / "x.svg")
    assert status == 0
    assert "ensemble-2.json is damaged" in said


def zipped(content: bytes, name: str = "a.npy", **options: Any) -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        archive.writestr(name, content)
    return bytearray(buffer.getvalue())


def npy(header: str) -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def bomb() -> bytes:
    """A small file whose only member claims to have, and would have, two gigabytes."""
    data = zipped(bytes(1 << 21), compression=zipfile.ZIP_DEFLATED)
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (1 << 31).to_bytes(4, "little")  # the size in the directory
    return bytes(data)


def with_flags(flags: int) -> bytes:
    data = zipped(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }\n"))
    entry = data.rindex(b"PK\x01\x02")
    data[6:8] = data[entry + 8 : entry + 10] = flags.to_bytes(2, "little")
    return bytes(data)


def broken_deflate() -> bytes:
    data = zipped(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }\n"), compression=zipfile.ZIP_DEFLATED)
    data[35:45] = b"\xff" * 10
    return bytes(data)


@pytest.mark.parametrize(
    "content",
    [
        bomb(),
        with_flags(1),
        with_flags(0x20),
        broken_deflate(),
        bytes(zipped(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }\n"))),
        bytes(zipped(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1), }\n"))),
        bytes(zipped(npy("{'descr': '|O', 'fortran_order': False, 'shape': (), }\n") + b"cos\nsystem\n")),
        bytes(zipped(npy("(" * 5000))),
        bytes(zipped(b"\x93NUMPY\x09\x00")),
        b"",
        b"PK\x05\x06" + bytes(18),
    ],
    ids=["bomb", "encrypted", "patched", "deflate", "shape", "negative", "object", "nested", "version", "empty", "no members"],
)
def test_strange_arrays_get_a_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    if content.startswith(b"PK\x05\x06"):
        assert decode_npz(content, path) == {}
        return
    with pytest.raises(Damaged, match=r"a.npz is damaged"):
        decode_npz(content, path)


# -- several runs -------------------------------------------------------------------------------------------------------------------


def test_one_damaged_run_does_not_stop_an_analysis_of_several(group: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = damage_results(group)
    status, shown, said = call(capsys, "analyse", group, "--masks", "--plain")
    assert status == 0
    assert f"{damaged} is not shown" in said
    assert "masks" in shown
    status, _, said = call(capsys, "analyse", damaged, "--masks", "--plain")
    assert status == 1
    assert "results.json is damaged" in said


def test_stored_results_of_before_checksums_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = add_results(make_run(tmp_path / "run")).run
    for path in (run / "analysis").glob("*.json"):
        value = json.loads(path.read_text())
        path.write_text(json.dumps({name: entry for name, entry in value.items() if name not in ("checksum", "arrays")}))
    for name in ("hessian", "surface"):
        assert call(capsys, "figure", name, run, "--out", tmp_path / "x.svg")[::2] == (0, "")
