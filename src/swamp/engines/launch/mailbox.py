"""The folder in the run directory through which the ranks of one launch send messages to each other.

Whoever may write to this folder may start trainings, so it belongs to the user who runs the launch, and nobody else may enter it. What
is read from it is still bounded in size and has fixed types (`messages.py`).
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from swamp.engines.launch import messages
from swamp.engines.launch.messages import AnyMessage, BadMessage
from swamp.engines.launch.ranks import ConnectionLost

MAX_BYTES = 1 << 26  # of a message
OVER = "over"  # The file of this name says that the run is over for all ranks.


class Mailbox:
    """Messages between ranks, as files in the folder `launch-SESSION`.

    A stream is a series of messages by one rank, in the files STREAM.1, STREAM.2, …. A file is written under another name first, so that
    it is complete when it is seen. Readers list the folder rather than open the next file of a stream: opening a directory makes a network
    file system look at the server, while that a file is missing may be remembered for a minute.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.num_sent: dict[str, int] = {}
        self.num_read: dict[str, int] = {}

    @classmethod
    def create(cls, work: Path, session: str) -> Mailbox:
        """Make the folder of a launch, and remove those of earlier launches. Only rank 0 does this, while it holds the run's lock."""
        work.mkdir(parents=True, exist_ok=True)
        require_folder(work)
        folder = work / f"launch-{session}"
        folder.mkdir(mode=0o700)
        require_private(folder)
        for path in set(work.glob("launch-*")) - {folder}:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)  # Ranks of that launch may still be ending.
            else:
                path.unlink(missing_ok=True)
        return cls(folder)

    @classmethod
    def find(cls, work: Path, session: str) -> Mailbox | None:
        """Return the mailbox that rank 0 has made, or None if it cannot be seen from here."""
        folder = work / f"launch-{session}"
        with suppress(OSError):
            os.close(os.open(work, os.O_RDONLY | os.O_DIRECTORY))  # A network file system then looks for new names.
        if not os.path.lexists(folder):
            return None
        require_folder(work)
        require_private(folder)
        require_own(folder)
        return cls(folder)

    def send(self, stream: str, message: AnyMessage) -> int:
        """Append a message to a stream, to which only this rank writes, and return its number of bytes."""
        data, number = messages.encode(message), self.num_sent.get(stream, 0) + 1
        self.write(f"{stream}.{number}", data)
        self.num_sent[stream] = number  # A number that was not written, for want of space, is used for the next message.
        return len(data)

    def receive(self, stream: str, names: Container[str] | None = None, consume: bool = False) -> AnyMessage | None:
        """Return the next message of a stream, or None if there is none yet. `names` are those of all files, if they are known.

        The only reader of a stream may `consume` it: a message is removed when it was read.
        """
        number = self.num_read.get(stream, 0) + 1
        name = f"{stream}.{number}"
        if name not in (self.names() if names is None else names):
            return None
        try:
            message = messages.decode(self.read(name, MAX_BYTES))
        except ValueError as error:
            raise BadMessage(f"{self.folder / name} is not a message of a rank ({error})") from None
        self.num_read[stream] = number
        if consume:
            (self.folder / name).unlink(missing_ok=True)
        return message

    def names(self) -> set[str]:
        """Return the names of all files. When the run has ended, the folder is gone; then there is no name but `OVER`."""
        try:
            return set(os.listdir(self.folder))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        # A new rank 0 makes its own folder before it removes this one.
        if any(self.folder.parent.glob("launch-*")):
            raise ConnectionLost("rank 0 was started again, without this rank")
        return {OVER}

    def write(self, name: str, data: bytes) -> None:
        """Write a file, which others see once it is complete."""
        temporary, file = new_file(self.folder)
        try:
            with file:
                file.write(data)
            os.rename(temporary, self.folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def read(self, name: str, limit: int) -> bytes:
        """Return the bytes of a file, of which there may be at most `limit`."""
        path = self.folder / name
        try:
            # Without blocking, a named pipe can be opened and is then refused.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise BadMessage(f"{path} is not a regular file")
                data = file.read(limit + 1)
        except OSError as error:
            raise BadMessage(f"{path} cannot be read ({error.strerror})") from None
        if len(data) > limit:
            raise BadMessage(f"{path} has more than {limit:,} bytes, the most that a message has")
        return data

    def end(self) -> None:
        """Tell all ranks that the run is over."""
        with suppress(FileNotFoundError):
            self.write(OVER, b"")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def require_folder(path: Path) -> int:
    """Refuse what is not a folder, such as a link to one, and return the mode of the folder."""
    mode = path.lstat().st_mode
    if not stat.S_ISDIR(mode):
        raise BadMessage(f"{path} is not a folder")
    return stat.S_IMODE(mode)


def require_private(folder: Path) -> None:
    """Refuse a folder that other users can write to."""
    if require_folder(folder) & 0o022:
        raise BadMessage(f"{folder} can be written by other users, so messages in it cannot be trusted: use a file system with permissions")


def require_own(folder: Path) -> None:
    """Refuse a folder of another user: what this process writes must have the folder's owner. On some network file systems that is not the
    user of the process, so that the two cannot be compared directly."""
    try:
        temporary, file = new_file(folder)
    except PermissionError:
        raise BadMessage(f"{folder} belongs to another user") from None
    with file:
        owner = os.fstat(file.fileno()).st_uid
    temporary.unlink()
    if owner != folder.lstat().st_uid:
        raise BadMessage(f"{folder} belongs to another user")


def new_file(folder: Path) -> tuple[Path, BinaryIO]:
    """Open a new file with a random name, which nobody else can read."""
    path = folder / f"tmp-{uuid.uuid4().hex}"
    return path, open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")
