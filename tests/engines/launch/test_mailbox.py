"""Messages are files in a folder of one user. Whatever else lies there ends a rank with one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from swamp.engines.launch import mailbox, messages
from swamp.engines.launch.mailbox import OVER, Mailbox
from swamp.engines.launch.messages import BadMessage, JobTrained
from swamp.engines.launch.ranks import ConnectionLost

SESSION = "0" * 32


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox.create(tmp_path / "work", SESSION)


def test_messages_are_read_in_order_and_once(box: Mailbox) -> None:
    reader = Mailbox.find(box.folder.parent, SESSION)
    assert reader is not None
    for key in "abc":
        box.send("rank-1", JobTrained(key))
    box.send("rank-2", JobTrained("z"))
    found = [reader.receive("rank-1") for _ in range(4)]
    assert found == [JobTrained("a"), JobTrained("b"), JobTrained("c"), None]
    assert reader.receive("rank-2", consume=True) == JobTrained("z")
    assert reader.names() == {"rank-1.1", "rank-1.2", "rank-1.3"}


def test_a_message_that_was_not_written_leaves_no_gap(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*names: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="No space left"):
            box.send("rank-1", JobTrained("a"))
    assert not box.names()
    box.send("rank-1", JobTrained("b"))
    assert box.receive("rank-1") == JobTrained("b")


def test_only_the_owner_can_use_the_folder(box: Mailbox) -> None:
    box.send("all", JobTrained("a"))
    assert box.folder.stat().st_mode & 0o777 == 0o700
    assert (box.folder / "all.1").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_can_write_is_refused(box: Mailbox, mode: int) -> None:
    box.folder.chmod(mode)
    with pytest.raises(BadMessage, match="can be written by other users"):
        Mailbox.find(box.folder.parent, SESSION)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(box: Mailbox) -> None:
    os.chown(box.folder, 12345, -1)
    with pytest.raises(BadMessage, match="belongs to another user"):
        Mailbox.find(box.folder.parent, SESSION)


def test_a_folder_that_cannot_be_entered_is_refused(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(mailbox, "new_file", refuse)
    with pytest.raises(BadMessage, match="belongs to another user"):
        Mailbox.find(box.folder.parent, SESSION)


def test_links_in_place_of_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadMessage, match="work is not a folder"):
        Mailbox.create(tmp_path / "work", SESSION)
    assert not [*(tmp_path / "elsewhere").iterdir()]
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / f"launch-{SESSION}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadMessage, match="is not a folder"):
        Mailbox.find(tmp_path / "real", SESSION)


def as_link(path: Path) -> None:
    path.with_name("target").write_bytes(messages.encode(JobTrained("a")))
    path.symlink_to("target")


def as_huge_file(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (as_link, r"cannot be read \(Too many levels of symbolic links\)"),
    "pipe": (os.mkfifo, "is not a regular file"),
    "folder": (os.mkdir, "cannot be read|is not a regular file"),
    "huge": (as_huge_file, "has more than 67,108,864 bytes"),
    "empty": (Path.touch, "is not a message of a rank"),
    "garbage": (lambda path: path.write_bytes(os.urandom(1000)), "is not a message of a rank"),
    "nested": (lambda path: path.write_bytes(b"\x91" * 10**6), "is not a message of a rank"),
    "pickle": (lambda path: path.write_bytes(b"cposix\nsystem\n(S'touch ran'\ntR."), "is not a message of a rank"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_one_sentence(box: Mailbox, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    make, text = HOSTILE[kind]
    make(box.folder / "rank-1.1")
    with pytest.raises(BadMessage, match=text) as found:
        box.receive("rank-1", consume=True)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "ran").exists()


def test_the_end_of_a_run_is_a_file_or_the_end_of_the_folder(box: Mailbox) -> None:
    assert OVER not in box.names()
    box.end()
    assert OVER in box.names()
    box.remove()
    assert box.names() == {OVER}
    box.end()  # The run directory is finished, and nothing is written there any more.
    assert not box.folder.exists()


def test_a_new_rank_0_is_not_the_end_of_the_run(box: Mailbox) -> None:
    Mailbox.create(box.folder.parent, "1" * 32)
    with pytest.raises(ConnectionLost, match="rank 0 was started again, without this rank"):
        box.names()
