"""Opens, writes, moves and removes files, so that a run directory which a stranger sent can do no harm.

Everything inside a run directory goes through `Folder`: no link is followed, only regular files and real directories are opened, and so
nothing outside of the directory is read, written, moved or removed. Writes happen completely or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEXT_LIMIT = 1 << 28  # bytes; no JSON file of a run comes near it, and one that is larger is not read into memory


class Damaged(ValueError):
    """A file does not hold what was written to it."""

    exit_status = 1  # of a command that this error ends; 2 would mean a mistake of the user

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged ({why})")
        self.path, self.why = path, why

    def __reduce__(self) -> tuple[Any, ...]:
        return Damaged, (self.path, self.why)


class Folder:
    """A directory whose content may come from a stranger.

    `root` is a path that the user gave and may be a link. `inside` is a path below it. Names are relative to both, with slashes between
    their parts. No part of `inside` or of a name may be a link, and a name cannot lead out of the root.
    """

    def __init__(self, root: Path, inside: str = "") -> None:
        self.root, self.inside = root, inside

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.root, f"{self.inside}/{name}" if self.inside else name)

    @property
    def path(self) -> Path:
        return self.root / self.inside

    # -- looking ------------------------------------------------------------------------------------------------------------------

    def stat(self, name: str) -> os.stat_result | None:
        """Return what stands under a name, of whatever kind, or None. A link is not followed."""
        with contextlib.suppress(FileNotFoundError), self._parent(name) as (parent, last):
            return os.stat(last, dir_fd=parent, follow_symlinks=False)
        return None

    def has(self, name: str) -> bool:
        """Return whether anything stands under a name."""
        return self.stat(name) is not None

    def names(self) -> list[str]:
        """Return the sorted names of what the folder holds; none if there is no such folder."""
        try:
            with self._opened() as descriptor:
                return sorted(os.listdir(descriptor))
        except FileNotFoundError:
            return []

    def link_target(self, name: str) -> str | None:
        """Return the target of a link, which is not followed; None if a name is no link."""
        found = self.stat(name)
        if found is None or not stat.S_ISLNK(found.st_mode):
            return None
        with self._parent(name) as (parent, last):
            return os.readlink(last, dir_fd=parent)

    # -- reading ------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def opened(self, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        """Open a regular file and yield its descriptor. Anything else under that name is `Damaged`."""
        with self._parent(name) as (parent, last):
            # Opening a pipe without O_NONBLOCK would wait for its other end.
            descriptor = _open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK, parent, self.path / name)
        try:
            _require_file(os.fstat(descriptor), self.path / name)
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, name: str, at_most: int | None = None) -> bytes:
        """Return the content of a file. One of more than `at_most` bytes is `Damaged`, and not read."""
        path = self.path / name
        with self.opened(name) as descriptor, open(descriptor, "rb", closefd=False) as file:
            size = os.fstat(descriptor).st_size
            if at_most is not None and size > at_most:
                raise Damaged(path, f"it has {size:,} bytes, and such a file has at most {at_most:,}")
            try:
                # A process may be appending to the file, and what it appends now is read the next time.
                return file.read(size)
            except MemoryError:
                raise Damaged(path, f"its {size:,} bytes do not fit into memory") from None

    def read_text(self, name: str) -> bytes:
        """Return the content of a JSON or text file, which has a reasonable size."""
        return self.read(name, TEXT_LIMIT)

    def sha256(self, name: str) -> str:
        with self.opened(name) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    # -- writing ------------------------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Make the folder and its parents, and sync their names to the disk."""
        with contextlib.suppress(FileNotFoundError), self._opened():
            return
        make_directory(self.root)
        parts = self.inside.split("/") if self.inside else []
        for index, part in enumerate(parts):
            with Folder(self.root, "/".join(parts[:index]))._opened() as parent:
                try:
                    os.mkdir(part, dir_fd=parent)
                except FileExistsError:
                    continue  # If it is a link or a file, opening it fails.
                os.fsync(parent)

    def write(self, name: str, data: bytes, scratch: Folder, mode: int | None = None) -> None:
        """Replace a file atomically, once the bytes are on the disk. The temporary file is in `scratch`, on the same file system.

        `mode` are the permissions of the file, if not the usual ones.
        """
        (self / name).parent.make()
        scratch.make()
        with self._parent(name) as (parent, last), scratch._opened() as temporaries:
            _replace(parent, last, data, temporaries, self.path / name, mode)

    def append(self, name: str, data: bytes) -> None:
        """Append a line to a file by a single write, which keeps lines of several processes apart.

        A line that a kill or a full disk has cut off is ended first, so that it does not take the next one with it.
        """
        with self.opened(name, os.O_RDWR | os.O_APPEND | os.O_CREAT) as descriptor:
            size = os.fstat(descriptor).st_size
            is_cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" + data if is_cut else data)

    def link(self, name: str, target: str) -> None:
        with self._parent(name) as (parent, last):
            os.symlink(target, last, dir_fd=parent)

    def link_file(self, name: str, other: Folder) -> bool:
        """Give a file the same name in another folder too, as a hard link. Return whether that was possible."""
        (other / name).parent.make()
        with self._parent(name) as (parent, last), other._parent(name) as (there, new):
            try:
                os.link(last, new, src_dir_fd=parent, dst_dir_fd=there, follow_symlinks=False)
            except (OSError, NotImplementedError):  # It is another file system, or one without such links.
                return False
            os.fsync(there)
            return True

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself, if it is there."""
        with contextlib.suppress(FileNotFoundError), self._parent(name) as (parent, last), _named(self.path / name):
            os.unlink(last, dir_fd=parent)

    def move(self, name: str, target: Folder) -> None:
        """Move whatever stands under a name to another folder of the same file system, under a name that is free there."""
        target.make()
        with self._parent(name) as (parent, last), target._opened() as there, _named(self.path / name):
            taken = set(os.listdir(there))
            free = next(new for new in (last, *(f"{last}.{number}" for number in range(1, len(taken) + 2))) if new not in taken)
            os.replace(last, free, src_dir_fd=parent, dst_dir_fd=there)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all that it holds, if it is there. Links in it are removed, not followed."""
        found = self.stat(name)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            raise Damaged(self.path / name, f"it is {_kind(found)} and no directory")
        with self._parent(name) as (parent, last):
            shutil.rmtree(last, ignore_errors=True, dir_fd=parent)

    # -- descriptors --------------------------------------------------------------------------------------------------------------

    @property
    def parent(self) -> Folder:
        return Folder(self.root, self.inside.rpartition("/")[0])

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder, part by part below the root, and yield its descriptor."""
        path = self.root
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in self.inside.split("/") if self.inside else ():
                path = path / part
                if part in ("", ".", ".."):
                    raise Damaged(path, "this name leads out of the directory")
                below = _open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, descriptor, path)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _parent(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the directory that holds a name, and the last part of the name."""
        whole = self / name
        before, _, last = whole.inside.rpartition("/")
        if last in ("", ".", ".."):
            raise Damaged(self.path / name, "this name leads out of the directory")
        with Folder(self.root, before)._opened() as descriptor:
            yield descriptor, last


def _open(name: str, flags: int, parent: int, path: Path) -> int:
    """Open a name in a directory. What is no plain file or directory, as the flags want, is `Damaged`."""
    try:
        return os.open(name, flags, 0o666, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EMLINK):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            wanted = "directory" if flags & os.O_DIRECTORY else "regular file"
            raise Damaged(path, f"it is {_kind(found)} and no {wanted}") from None
        error.filename = str(path)
        raise


def _require_file(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Damaged(path, f"it is {_kind(found)} and no regular file")


def _kind(found: os.stat_result) -> str:
    """Say what something is that is not what it should be."""
    kinds = {stat.S_IFLNK: "a link, which is not followed,", stat.S_IFDIR: "a directory", stat.S_IFREG: "a file", stat.S_IFIFO: "a pipe"}
    return kinds.get(stat.S_IFMT(found.st_mode), "a special file")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Give operating system errors the whole path, which they lack where a name is relative to a descriptor."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _replace(parent: int, name: str, data: bytes, scratch: int, path: Path, mode: int | None) -> None:
    # A random name, because processes of several hosts may write here and have equal process ids.
    temporary = f"tmp-{uuid.uuid4().hex}"
    with _named(path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=scratch)
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, name, src_dir_fd=scratch, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=scratch)
            raise
    os.fsync(parent)


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user named, atomically: if that fails, what the file held before is still there.

    A link is followed, and the file keeps its permissions. What is no regular file, such as /dev/stdout, is written to as it is.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        place.write_bytes(data)
        return
    if place.exists() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else None
    try:
        folder = Folder(place.parent)
        folder.write(place.name, data, folder, mode)
    except OSError as error:  # of the temporary file, whose name says nothing
        error.filename = str(path)
        raise


def make_directory(directory: Path) -> None:
    """Make a directory that the user named and its parents, and sync their names to the disk."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory's new and removed names to the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def explain_os_error(error: OSError) -> str:
    """Say in one sentence what failed on the disk, and for a full disk that nothing is lost."""
    place = f" {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"no space left to write{place}; what was stored is sound: free some space and run again"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"too many files are open{place and ':' + place}; allow more (ulimit -n) and run again: what was stored is sound"
    return f"cannot use{place or ' a file'}: {error.strerror or error}"
