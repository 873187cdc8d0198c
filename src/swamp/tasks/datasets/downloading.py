"""Fetches the published files of a data set: resumed where a download broke off, and checked before they take their names."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Protocol

from swamp.core.errors import reason_of
from swamp.tasks.datasets.dataset import Download, Official
from swamp.version import __version__

CHUNK = 2**18  # bytes
TIMEOUT = 60.0  # seconds without a byte
MOST_UNZIPPED = 2**30  # bytes; Tiny-ImageNet has about half as many

# Gets the name of a file, the bytes that are there, and all of them where that is known.
DownloadReport = Callable[[str, int, int | None], None]


class DownloadFailed(RuntimeError):
    """A download broke off, or brought something else than the published file."""


class Response(Protocol):
    """What is used of an answer to a request."""

    status: int
    headers: http.client.HTTPMessage

    def read(self, amount: int) -> bytes: ...


def download(official: Official, folder: Path, report: DownloadReport) -> list[Path]:
    """Fetch the files of a data set that the folder lacks, and return their paths. No file that is there is changed."""
    fetched: list[Path] = []
    if len(official.downloads) == 1 and any((folder / name / official.marker).exists() for name in official.folders):
        return fetched  # Somebody has unpacked it.
    for wanted in official.downloads:
        path = folder / wanted.file
        unpacked = folder / official.folders[0] if wanted.is_unpacked else None
        if unpacked and unpacked.exists():
            continue
        if path.exists():
            _check_md5(path, wanted.md5)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            fetch(wanted, path, report)
            fetched.append(path)
        if unpacked:
            unpack(path, unpacked)
            fetched.append(unpacked)
    return fetched


def fetch(wanted: Download, path: Path, report: DownloadReport) -> None:
    """Fetch a file to a path that does not exist. What arrives is kept in PATH.part, from which the next call goes on."""
    part = path.with_name(path.name + ".part")
    done = part.stat().st_size if part.exists() else 0
    if done and wanted.md5 and _md5_of(part) == wanted.md5:
        part.rename(path)  # The last call was stopped after the last byte.
        return
    with contextlib.closing(_opened(wanted.url, done)) as response:
        if done and _first_byte(response) != done:
            done = 0  # The server sends the whole file, because it cannot continue.
        length = response.headers.get("Content-Length")
        total = done + int(length) if length is not None and length.isdecimal() else None
        with part.open("r+b" if done else "wb") as file:
            file.seek(done)
            while data := _read(response, wanted.url, path, done, total):
                file.write(data)
                done += len(data)
                report(path.name, done, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:
        raise _broken(wanted.url, path, done, total, "the connection was closed")
    try:
        _check_md5(part, wanted.md5)
    except ValueError as error:
        part.unlink()
        raise DownloadFailed(f"{wanted.url} brought another file than the published one: {error}; it was removed") from None
    part.rename(path)


def _opened(url: str, done: int) -> http.client.HTTPResponse:
    """Ask for a file from a byte on."""
    headers = {"User-Agent": f"swamp/{__version__}", **({"Range": f"bytes={done}-"} if done else {})}
    try:
        found: http.client.HTTPResponse = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
        return found
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
            return _opened(url, 0)  # There are as many bytes as the file has, or more. Which of them are wrong is not known.
        raise DownloadFailed(f"{url} cannot be fetched: the server answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise DownloadFailed(f"{url} cannot be fetched: {reason_of(getattr(error, 'reason', None) or error)}") from None


def _first_byte(response: Response) -> int:
    """Return the number of the first byte that a server sends."""
    unit, _, numbers = response.headers.get("Content-Range", "").partition(" ")
    first = numbers.partition("-")[0]
    return int(first) if response.status == http.HTTPStatus.PARTIAL_CONTENT and unit == "bytes" and first.isdecimal() else 0


def _read(response: Response, url: str, path: Path, done: int, total: int | None) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _broken(url, path, done, total, reason_of(error)) from None


def _broken(url: str, path: Path, done: int, total: int | None, why: str) -> DownloadFailed:
    of_all = f" of {total:,}" if total is not None else ""
    return DownloadFailed(f"{url} broke off after {done:,}{of_all} bytes ({why}); they are kept, and the same command goes on from there")


def _check_md5(path: Path, published: str) -> None:
    """Raise ValueError unless a file has the published checksum, if there is one."""
    if published and (found := _md5_of(path)) != published:
        raise ValueError(f"{path} has the MD5 {found}, not {published}")


def _md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip archive whose files all lie in one folder, which does not exist yet and appears when it is whole."""
    place = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(place, ignore_errors=True)  # what an earlier call left that was stopped
    try:
        with zipfile.ZipFile(archive) as packed:
            members = packed.infolist()
            for member in members:
                parts = PurePosixPath(member.filename).parts
                if not parts or parts[0] != folder.name or ".." in parts:
                    raise ValueError(f"it has a file outside of {folder.name}/")
            if sum(member.file_size for member in members) > MOST_UNZIPPED:
                raise ValueError("it unpacks to more bytes than the published file")
            packed.extractall(place)  # This compares the checksum of each file.
        if not (place / folder.name).is_dir():
            raise ValueError(f"it has no folder {folder.name}")
        (place / folder.name).rename(folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, NotADirectoryError, RuntimeError) as error:
        raise DownloadFailed(
            f"{archive} is damaged or not the published file ({reason_of(error)}); remove it, and fetch it again"
        ) from None
    finally:
        shutil.rmtree(place, ignore_errors=True)
