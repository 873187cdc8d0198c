"""The Ray cluster that a run trains on: an existing one that is asked for first, or one on this machine that nobody else can use."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from swamp.core.errors import reason_of

ANSWER_SECONDS = 30.0  # within which a cluster must answer
PROBE = """
import socket, sys
address = sys.argv[1]
host, _, port = address.removeprefix("ray://").rpartition(":")
try:
    if host and port.isdecimal():  # It is no word, such as auto. Ray itself would try for half a minute where nobody listens.
        socket.create_connection((host.strip("[]"), int(port))).close()
    import ray
    ray.init(address, logging_level="ERROR", log_to_driver=False)
except Exception as error:
    print(getattr(error, "strerror", None) or str(error).strip().partition("\\n")[0] or type(error).__name__)
    sys.exit(1)
"""


class RayFailed(RuntimeError):
    """The cluster did not do what was asked of it."""


def load_ray() -> Any:
    """Return the module `ray`, or raise a ValueError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Without it, Ray warns on every machine without a GPU.
    try:
        import ray
    except ImportError:
        raise ValueError("engine 'ray' needs Ray: pip install 'swamp[ray]'") from None
    return ray


# -- existing clusters ------------------------------------------------------------------------------------------------------------


@cache
def require_reachable(address: str) -> None:
    """Raise a ValueError if no Ray cluster answers at this address within 30 s. Another process asks, because Ray cannot be interrupted."""
    try:
        probe = [sys.executable, "-P", "-c", PROBE, address]
        found = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        raise ValueError(unreachable(address, f"not within {ANSWER_SECONDS:g} s")) from None
    if found.returncode:
        raise ValueError(unreachable(address, (found.stdout.strip() or found.stderr.strip() or "it ended").splitlines()[-1]))


def unreachable(address: str, reason: str) -> str:
    return f"engines.ray.address = {address!r}: no Ray cluster answers there ({reason})"


# -- a cluster of our own ---------------------------------------------------------------------------------------------------------


@contextmanager
def local_cluster(ray: Any, **settings: Any) -> Iterator[None]:
    """Start a cluster on this machine, to which this process is connected while inside.

    It listens only on the loopback interface, and refuses whoever does not know its token. The token is new for every cluster, and only in
    the environment of its processes, which other users cannot read. The folder of the cluster's sockets, which Ray makes writable
    for everybody, lies in one that only this user can enter.
    """
    own = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_AUTH_TOKEN_PATH": None,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray then uses the loopback address, on Linux too.
    }
    # Names of sockets may have 107 bytes, so the folder must have a short name.
    short = "/tmp" if os.path.isdir("/tmp") else None
    with _environment(ray, own), TemporaryDirectory(prefix="swamp-ray-", dir=short, ignore_cleanup_errors=True) as folder:
        try:
            # Without "local", Ray would use a cluster that this machine belongs to.
            ray.init(address="local", include_dashboard=False, _temp_dir=os.path.join(folder, "ray"), **settings)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RayFailed(f"no Ray cluster could be started on this machine ({reason_of(error)})") from None
        try:
            _require_private(ray)
            yield
        finally:
            ray.shutdown()


@contextmanager
def _environment(ray: Any, changes: dict[str, str | None]) -> Iterator[None]:
    """Change variables of the environment while inside, and let Ray read them again, which it does only when it is imported."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set_environment(ray, changes)
        yield
    finally:
        _set_environment(ray, before)


def _set_environment(ray: Any, variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        constants = ray._private.ray_constants
        constants.ENABLE_RAY_CLUSTER = constants.env_bool("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", sys.platform == "linux")
        ray._raylet.Config.initialize("")
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
    except AttributeError as error:
        raise RayFailed(f"Ray {ray.__version__} has no token authentication as swamp knows it ({error}): use 2.52 or newer") from None


def _require_private(ray: Any) -> None:
    """Check that the cluster is as closed as it was asked to be, since other versions of Ray may read other settings."""
    host = ray.get_runtime_context().gcs_address.rpartition(":")[0]
    with_token = ray._raylet.get_authentication_mode() == ray._raylet.AuthenticationMode.TOKEN
    if host not in ("127.0.0.1", "[::1]", "::1") or not with_token:
        raise RayFailed(f"Ray {ray.__version__} starts no cluster that only this process can use: it listens at {host}")
