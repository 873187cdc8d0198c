from __future__ import annotations

import errno
import fcntl
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.store import files
from swamp.store.directory import BEGUN, FAILED, FORMAT_VERSION, PLAN, Locked, Store
from swamp.store.files import Damaged, Folder
from swamp.store.finding import cache_part, is_in_run_directory, make_cache, runs_in
from swamp.store.formats import encode_json
from swamp.store.objects import Dropped
from swamp.training.train import Checkpoint

HEADER = {"config": {}, "config_hash": "h", "seed": 3, "task": "t", "versions": {"swamp": "0", "torch": "2", "python": "3"}}
STATE = State({"b.weight": torch.ones(2, 2), "a.weight": torch.zeros(3)}, {"bn.num_batches_tracked": torch.tensor(5)})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "run")


def test_solutions_come_back(store: Store) -> None:
    assert store.solution("key") is None
    saved = store.save_solution("key", STATE, [{"epoch": 0, "loss": 0.5}])
    for solution in (saved, store.solution("key"), pickle.loads(pickle.dumps(store)).solution("key")):
        assert solution is not None
        assert solution.history == ({"epoch": 0, "loss": 0.5},)
        loaded = solution.load()
        assert loaded.digest() == STATE.digest()
        assert set(loaded.buffers) == {"bn.num_batches_tracked"}


def test_masks_keep_their_order(store: Store) -> None:
    mask = Mask({"z": torch.tensor([True, False]), "a": torch.tensor([[True], [True]])})
    store.save_mask(mask)
    loaded = store.load_mask(mask.digest)
    assert loaded is not None
    assert list(loaded.layers) == ["z", "a"]
    assert loaded.digest == mask.digest
    assert store.load_mask("other") is None


def test_dropping_keeps_the_record_and_forgetting_does_not(store: Store) -> None:
    store.save_solution("key", STATE, ())
    store.drop("key")
    store.drop("key")
    solution = store.solution("key")
    assert solution is not None
    with pytest.raises(Dropped):
        solution.load()
    store.forget("key")
    assert store.solution("key") is None


def test_weights_that_vanished_are_not_taken_for_dropped(store: Store) -> None:
    store.save_solution("key", STATE, ())
    (store.objects / "key.safetensors").unlink()
    assert store.solution("key") is None


def test_a_damaged_checkpoint_is_as_good_as_none(store: Store) -> None:
    checkpoint = Checkpoint({"parameter/w": torch.ones(3)}, 2, 1, [{"epoch": 1, "loss": 0.25}])
    store.write_checkpoint("key", checkpoint)
    found = store.read_checkpoint("key")
    assert found is not None
    assert (found.epoch, found.num_averaged, found.history) == (2, 1, checkpoint.history)
    (path,) = store.work.glob("*.checkpoint")
    path.write_bytes(path.read_bytes()[:-1])
    assert store.read_checkpoint("key") is None
    store.remove_checkpoint("key")
    store.remove_checkpoint("key")


def test_damaged_objects_are_put_aside_and_named(store: Store) -> None:
    store.save_solution("good", STATE, ())
    store.save_solution("bad", STATE, ())
    store.write_value("worse", {"x": 1})
    (store.objects / "bad.safetensors").write_bytes(b"garbage")
    text = (store.objects / "worse.json").read_text()
    (store.objects / "worse.json").write_text(text.replace('"x": 1', '"x": 2'))
    (store.objects / "stray.txt").write_text("?")
    with pytest.raises(Damaged, match=r"bad\.safetensors is damaged"):
        store.load_state("bad")
    assert [path.name for path in store.put_aside_damaged()] == ["bad.safetensors", "stray.txt", "worse.json"]
    assert store.solution("good") is not None
    assert store.solution("bad") is None
    assert store.read_value("worse") is None


def test_the_cache_is_read_checked_and_never_needed_afterwards(tmp_path: Path) -> None:
    cache = cache_part(tmp_path / "cache", "cpu")
    make_cache(cache)
    Store(tmp_path / "one", cache).save_solution("key", STATE, ())
    Store(tmp_path / "one", cache).drop("key")  # its own copy only
    other = Store(tmp_path / "two", cache)
    assert other.solution("key") is not None
    assert Store(tmp_path / "two").load_state("key").digest() == STATE.digest()
    (cache / "objects" / "key.safetensors").write_bytes(b"garbage")
    assert Store(tmp_path / "three", cache).solution("key") is None


def test_one_process_at_a_time(store: Store) -> None:
    code = f"""
from pathlib import Path
from swamp.store.directory import Locked, Store
store = Store(Path({str(store.root)!r}))
try:
    with store.locked(): print("in", flush=True)
except Locked as error:
    print(error, flush=True)
input()
with store.locked(): print("in")
"""
    with store.locked():
        other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert "in use by another process" in other.stdout.readline()
        with pytest.raises(Locked), store.locked():
            pass
    assert other.communicate("\n")[0] == "in\n"


def test_a_file_system_without_locks_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with pytest.raises(OSError, match="No locks available") as error, store.locked():
        pass
    assert files.explain_os_error(error.value) == f"cannot use {store.root / '.lock'}: No locks available"


def test_other_formats_are_refused(store: Store) -> None:
    assert store.header() is None
    store.write_header(HEADER)
    assert store.header() == {**HEADER, "format_version": FORMAT_VERSION}
    for version, why in ((FORMAT_VERSION + 1, "newer swamp"), (FORMAT_VERSION - 1, "does not read")):
        (store.root / "run.json").write_bytes(encode_json({**HEADER, "format_version": version}))
        with pytest.raises(ValueError, match=why):
            store.header()


def test_links_follow_what_is_kept(store: Store) -> None:
    store.save_solution("one", STATE, ())
    store.link_row(3, "lost", "one", ["gone"])
    assert [p.name for p in sorted((store.root / "cycle-03").iterdir())] == ["average.safetensors"]
    assert (store.root / "cycle-03" / "average.safetensors").read_bytes() == (store.objects / "one.safetensors").read_bytes()
    store.drop("one")
    store.link_row(3, "lost", "one", ["gone"])
    assert list((store.root / "cycle-03").iterdir()) == []


def test_groups(tmp_path: Path) -> None:
    for name in ("seed-0", "seed-10", "seed-2"):
        Store(tmp_path / name).write_header(HEADER)
    assert [path.name for path in runs_in(tmp_path)] == ["seed-0", "seed-2", "seed-10"]
    assert runs_in(tmp_path / "seed-2") == [tmp_path / "seed-2"]
    with pytest.raises(ValueError, match="does not exist"):
        runs_in(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no run"):
        runs_in(tmp_path / "empty")


def _closed(look: Callable[..., os.stat_result], path: Path, **options: object) -> os.stat_result:
    if Path(path).parent.name in ("seed-1", "lost+found"):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return look(path, **options)


def test_a_directory_of_a_group_that_is_closed_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("seed-0", "seed-1"):
        Store(tmp_path / name).write_header(HEADER)
    (tmp_path / "lost+found").mkdir()  # as at the root of a disk
    for name in ("stat", "lstat"):  # Root, as whom tests may run, may look into every directory.
        monkeypatch.setattr(os, name, partial(_closed, getattr(os, name)))
    assert [path.name for path in runs_in(tmp_path)] == ["seed-0", "seed-1"]


def test_a_file_below_a_closed_folder_is_in_no_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, partial(_closed, getattr(os, name)))
    assert not is_in_run_directory(tmp_path / "seed-1" / "mine" / "recipe.toml")
    Store(tmp_path / "run").write_header(HEADER)
    assert is_in_run_directory(tmp_path / "run" / "mine" / "recipe.toml")


def test_a_file_in_anothers_place_is_damaged(store: Store) -> None:
    store.save_solution("one", STATE, ())
    store.save_solution("two", State({"w": torch.zeros(1)}, {}), ())
    (store.objects / "two.safetensors").write_bytes((store.objects / "one.safetensors").read_bytes())
    with pytest.raises(Damaged, match="it is another object"):
        store.load_state("two")
    assert [path.name for path in store.put_aside_damaged()] == ["two.safetensors"]


def test_a_damaged_cache_is_named_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = cache_part(tmp_path / "cache", "cpu")
    make_cache(cache)
    Store(tmp_path / "one", cache).save_solution("key", STATE, ())
    shared = cache / "objects" / "key.safetensors"
    shared.write_bytes(b"garbage")
    other = Store(tmp_path / "two", cache)
    assert other.solution("key") is None
    assert "key.safetensors is damaged" in capsys.readouterr().err
    other.save_solution("key", STATE, ())
    assert Store(tmp_path / "three", cache).load_state("key").digest() == STATE.digest()


def test_an_object_that_leaves_the_cache_meanwhile_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run removes what it found damaged, right after this one has looked."""
    cache = cache_part(tmp_path / "cache", "cpu")
    make_cache(cache)
    has = Folder.has
    monkeypatch.setattr(Folder, "has", lambda folder, name: folder.root == cache or has(folder, name))
    assert Store(tmp_path / "run", cache).solution("key") is None


def test_caches_are_kept_apart_and_checked(tmp_path: Path) -> None:
    assert cache_part(tmp_path / "c", "cpu") != cache_part(tmp_path / "c", "cuda:1") == cache_part(tmp_path / "c", "cuda")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="cannot be used"):
        cache_part(tmp_path / "file", "cpu")
    with pytest.raises(ValueError, match="cannot be used"):
        make_cache(tmp_path / "file" / "part")
    Store(tmp_path / "run").write_header(HEADER)
    with pytest.raises(ValueError, match="is a run directory"):
        cache_part(tmp_path / "run", "cpu")


def test_temporaries_never_meet(tmp_path: Path) -> None:
    """Processes of several hosts may have one number."""
    names = set()
    real = os.replace
    try:
        os.replace = lambda a, b, **fds: (names.add(str(a)), real(a, b, **fds))[1]  # type: ignore[assignment]
        for _ in range(20):
            Folder(tmp_path).write("x", b"1", Folder(tmp_path / "work"))
    finally:
        os.replace = real
    assert len(names) == 20


def test_dropping_marks_the_record_before_it_removes_the_weights(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in between, nothing is taken for lost."""
    store.save_solution("key", STATE, ())

    def killed(path: str, dir_fd: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            store.drop("key")
    assert store.read_value("key")["dropped"]  # type: ignore[index]
    assert store.has_arrays("key")


def test_a_line_of_the_journal_that_was_cut_off_does_not_take_the_next_one_with_it(tmp_path: Path) -> None:
    journal = Store(tmp_path).journal
    journal.log({"what": PLAN, "epochs": 3})
    with (tmp_path / "timing.jsonl").open("a") as file:
        file.write('{"what": "cycle 0, part')  # as of a kill, or a disk that was full
    journal.log({"what": FAILED, "why": "no space left"})
    journal.log({"what": BEGUN})
    assert [record["what"] for record in journal.records()] == [PLAN, FAILED, BEGUN]
