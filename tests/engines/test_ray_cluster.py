"""An address at which no Ray cluster answers is refused in one sentence, before anything is written."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from swamp.engines import ray_cluster
from swamp.engines.ray_cluster import RayFailed, local_cluster
from tests.support.cli import call

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_refused_at_once(scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{closed.getsockname()[1]}"
        begin = time.monotonic()
        status, _, errors = call(capsys, "run", "digits", "--engine=ray", f"--ray-address={address}", "--out", tmp_path / "run")
    assert status == 2
    assert f"engines.ray.address = '{address}': no Ray cluster answers there (Connection refused)" in errors
    assert time.monotonic() - begin < 25
    assert not (tmp_path / "run").exists()


def test_a_port_that_says_nothing_is_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_cluster, "ANSWER_SECONDS", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        status, _, errors = call(capsys, "run", "digits", "--engine=ray", f"--ray-address={address}", "--out", tmp_path / "run")
    assert status == 2
    assert f"engines.ray.address = '{address}': no Ray cluster answers there (not within 3 s)" in errors
    assert not (tmp_path / "run").exists()


def test_a_ray_without_tokens_starts_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    old = SimpleNamespace(__version__="2.50.0", _private=ray._private, _raylet=SimpleNamespace(Config=ray._raylet.Config))
    with pytest.raises(RayFailed, match=r"Ray 2\.50\.0 has no token authentication"), local_cluster(old):
        pass
    monkeypatch.setattr(ray_cluster, "_set_environment", lambda ray, variables: None)
    open_ray = SimpleNamespace(
        __version__="9.0",
        init=lambda **settings: None,
        shutdown=lambda: None,
        get_runtime_context=lambda: SimpleNamespace(gcs_address="192.0.2.2:6379"),
        _raylet=ray._raylet,
    )
    with pytest.raises(RayFailed, match=r"that only this process can use: it listens at 192\.0\.2\.2"), local_cluster(open_ray):
        pass
    assert "RAY_AUTH_TOKEN" not in os.environ
