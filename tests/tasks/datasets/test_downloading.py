"""Downloads, from a server of this process."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from swamp.tasks.datasets import cifar, official_sets, tiny_imagenet
from swamp.tasks.datasets.dataset import Download, Official
from swamp.tasks.datasets.downloading import DownloadFailed, download, fetch, unpack
from tests.support.cli import call

CONTENT = bytes(range(256)) * 3000  # 768,000 bytes, three chunks
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server:
    """Serves one file. `stop_after` bytes the connection is closed, once; `ranges` says whether it can continue."""

    def __init__(self) -> None:
        self.content, self.ranges, self.stop_after, self.chunked = CONTENT, True, 0, False
        self.asked: list[str | None] = []  # the range of each request
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked = self.headers.get("Range")
                server.asked.append(asked)
                if self.path != "/file":
                    self.send_error(404)
                    return
                first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
                if first >= len(server.content):
                    self.send_error(416)
                    return
                body = server.content[first:]
                self.send_response(206 if asked and server.ranges else 200)
                if asked and server.ranges:
                    self.send_header("Content-Range", f"bytes {first}-{len(server.content) - 1}/{len(server.content)}")
                self.send_header(*(("Transfer-Encoding", "chunked") if server.chunked else ("Content-Length", str(len(body)))))
                self.end_headers()
                if server.chunked:
                    self.wfile.write(b"%x\r\n" % len(body))
                if server.stop_after:
                    self.wfile.write(body[: server.stop_after])
                    server.stop_after, self.close_connection = 0, True
                    return
                self.wfile.write(body + (b"\r\n0\r\n\r\n" if server.chunked else b""))

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, args=[0.01], daemon=True)
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()


def silent(name: str, done: int, total: int | None) -> None:
    pass


def test_a_whole_file_with_its_progress(server: Server, tmp_path: Path) -> None:
    said: list[tuple[str, int, int | None]] = []
    fetch(Download(server.url, "f", MD5), tmp_path / "f", lambda *heard: said.append(heard))
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert said[-1] == ("f", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in said] == sorted({done for _, done, _ in said})


@pytest.mark.parametrize("chunked", [False, True])
def test_a_broken_download_goes_on_where_it_ended(chunked: bool, server: Server, tmp_path: Path) -> None:
    server.stop_after, server.chunked = 300_000, chunked
    with pytest.raises(DownloadFailed, match=r"broke off after .* they are kept, and the same command goes on from there"):
        fetch(Download(server.url, "f", MD5), tmp_path / "f", silent)
    kept = (tmp_path / "f.part").stat().st_size
    assert kept > 200_000 or chunked
    assert not (tmp_path / "f").exists()
    fetch(Download(server.url, "f", MD5), tmp_path / "f", silent)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={kept}-" if kept else None]


def test_a_server_that_cannot_continue_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "f.part").write_bytes(CONTENT[:1000])
    fetch(Download(server.url, "f", MD5), tmp_path / "f", silent)
    assert server.asked == ["bytes=1000-"]
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_part_that_is_whole_or_too_long(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT)
    fetch(Download(server.url, "f", MD5), tmp_path / "f", silent)
    assert server.asked == []
    (tmp_path / "g.part").write_bytes(CONTENT + b"more")
    fetch(Download(server.url, "g", MD5), tmp_path / "g", silent)
    assert server.asked == [f"bytes={len(CONTENT) + 4}-", None]
    assert (tmp_path / "g").read_bytes() == CONTENT


def test_another_file_than_the_published_one_is_not_kept(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"x" * 1000)  # of another file
    with pytest.raises(DownloadFailed, match=rf"brought another file than the published one: .* not {MD5}; it was removed"):
        fetch(Download(server.url, "f", MD5), tmp_path / "f", silent)
    assert list(tmp_path.iterdir()) == []
    fetch(Download(server.url, "f", MD5), tmp_path / "f", silent)


def test_servers_that_are_not_there(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match="the server answers 404 Not Found"):
        fetch(Download(server.url + "s", "f"), tmp_path / "f", silent)
    with pytest.raises(DownloadFailed, match=r"cannot be fetched: .*refused"):
        fetch(Download("http://127.0.0.1:9/file", "f"), tmp_path / "f", silent)
    assert list(tmp_path.iterdir()) == []


def packed(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def zipped(server: Server) -> Official:
    return replace(tiny_imagenet.TINY_IMAGENET, downloads=(Download(server.url, "tiny.zip", is_unpacked=True),))


def test_archives_are_unpacked_once(server: Server, tmp_path: Path) -> None:
    server.content = packed({"tiny-imagenet-200/wnids.txt": b"n1", "tiny-imagenet-200/train/n1/images/a.JPEG": b"jpeg"})
    folder = tmp_path / "tiny-imagenet-200"
    assert download(zipped(server), tmp_path, silent) == [tmp_path / "tiny.zip", folder]
    assert (folder / "train/n1/images/a.JPEG").read_bytes() == b"jpeg"
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.zip", "tiny-imagenet-200"}
    (folder / "wnids.txt").write_bytes(b"mine")
    assert download(zipped(server), tmp_path, silent) == []
    assert (folder / "wnids.txt").read_bytes() == b"mine"


def test_what_somebody_has_unpacked_is_not_fetched(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").touch()
    local = replace(cifar.CIFAR10, downloads=(Download(server.url, "cifar-10-python.tar.gz", MD5),))
    assert download(local, tmp_path, silent) == []
    assert server.asked == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (packed({"tiny-imagenet-200/a": b"1", "tiny-imagenet-200/../../b": b"2"}), "a file outside of tiny-imagenet-200/"),
        (packed({"other/a": b"1"}), "a file outside of tiny-imagenet-200/"),
        (packed({"/tmp/a": b"1"}), "a file outside of tiny-imagenet-200/"),
        (packed({"tiny-imagenet-200/a": b"unchanged"}).replace(b"unchanged", b"different"), "Bad CRC-32"),
        (b"no archive at all", "not a zip file"),
    ],
)
def test_archives_that_are_not_the_published_one(content: bytes, why: str, server: Server, tmp_path: Path) -> None:
    server.content = content
    with pytest.raises(DownloadFailed, match=f"is damaged or not the published file .*{why}"):
        download(zipped(server), tmp_path / "data", silent)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["tiny.zip"]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.fixture
def local_cifar(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The data set `cifar10` as the local server has it."""
    local = replace(cifar.CIFAR10, downloads=(Download(server.url, "cifar-10-python.tar.gz", MD5),))
    monkeypatch.setitem(cifar.OFFICIAL_SETS, "cifar10", local)
    official_sets.cache_clear()
    yield server
    official_sets.cache_clear()


def test_the_command(local_cifar: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    local_cifar.stop_after = 300_000
    status, _, error = call(capsys, "download", "cifar10", "--data", tmp_path / "data")
    assert status == 1
    assert error.count("\n") == 1
    assert "broke off after" in error
    status, out, error = call(capsys, "download", "cifar10", "--data", tmp_path / "data")
    assert status == 0
    assert f"CIFAR-10 (python version) is in {tmp_path / 'data'}" in out
    assert "cifar-10-python.tar.gz: 100 % of 0.8 MB" in error
    monkeypatch.setenv("SWAMP_DATA", str(tmp_path / "data"))
    assert "already; nothing was fetched" in call(capsys, "download", "cifar10")[1]
    (tmp_path / "data" / "cifar-10-python.tar.gz").write_bytes(b"mine")
    status, _, error = call(capsys, "download", "cifar10")
    assert status == 2
    assert f"has the MD5 {hashlib.md5(b'mine').hexdigest()}, not {MD5}" in error
    assert (tmp_path / "data" / "cifar-10-python.tar.gz").read_bytes() == b"mine"  # Nothing is overwritten.


@pytest.mark.usefixtures("local_cifar")
def test_a_full_disk_and_a_folder_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cifar-10-python.tar.gz.part").symlink_to("/dev/full")
    status, _, error = call(capsys, "download", "cifar10", "--data", tmp_path)
    assert (status, error.count("\n")) == (1, 1)
    assert "no space left" in error
    (tmp_path / "file").write_text("")
    status, _, error = call(capsys, "download", "cifar10", "--data", tmp_path / "file")
    assert (status, error.count("\n")) == (1, 1)
    assert "cannot use" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cifar20"], "unknown data set 'cifar20'; did you mean 'cifar10'? Known: "),
        (["imagenet", "--data", "d"], "swamp does not download ImageNet (ILSVRC 2012); DIR should contain"),
        (["mrpc", "--data", "d"], "get it from https://gluebenchmark.com/tasks"),
        (["digits"], "digits comes with a package; there is nothing to download"),
        (["cifar10"], "name the folder that CIFAR-10 (python version) goes to: --data DIR or SWAMP_DATA"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWAMP_DATA", raising=False)
    status, _, error = call(capsys, "download", *arguments)
    assert status == 2
    assert message in error


def test_every_published_file_is_well_described(capsys: pytest.CaptureFixture[str]) -> None:
    for official in official_sets().values():
        for wanted in official.downloads:
            assert wanted.url.startswith("http")
            assert len(wanted.md5) == 32 or (wanted.is_unpacked and wanted.file.endswith(".zip"))
            readable = (official.archive, *(f"{official.folders[0]}/{name}" for name in official.md5s))
            assert wanted.is_unpacked or wanted.file in readable
    out = call(capsys, "download")[1]
    assert "cifar100" in out
    assert "by hand" in out


@pytest.mark.parametrize("members", [[], ["set"], ["set/a", "set/a/b"]])
def test_an_archive_without_a_sound_folder_gets_one_sentence(members: list[str], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as packed:
        for member in members:
            packed.writestr(member, b"x")
    with pytest.raises(DownloadFailed, match="is damaged or not the published file"):
        unpack(tmp_path / "set.zip", tmp_path / "set")
    assert not (tmp_path / "set").exists()
