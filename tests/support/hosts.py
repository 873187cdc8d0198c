"""Imitates hosts by network namespaces, each with its own address and name, joined by a bridge. No traffic leaves the machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

PORT = 29417


def why_unavailable() -> str:
    """Say why such hosts cannot be made here; return an empty string if they can."""
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        return "network namespaces need root, ip and unshare"
    probe = f"swamp-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


def ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True)


class Hosts:
    """A context manager that makes the hosts and removes them at its end."""

    def __init__(self, count: int) -> None:
        self.names = [f"swamp-{os.getpid() % 10000}-{index}" for index in range(count)]
        self.bridge = f"swb{os.getpid() % 10000}"
        self.links = [f"sw{os.getpid() % 10000}v{index}" for index in range(count)]
        self.table = Path(tempfile.gettempdir()) / f"{self.bridge}-hosts"

    def address(self, index: int) -> str:
        return f"10.177.0.{index + 1}"

    def __enter__(self) -> Hosts:
        lines = ["127.0.0.1 localhost", *(f"{self.address(index)} host{index}" for index in range(len(self.names)))]
        self.table.write_text("\n".join(lines) + "\n")
        try:
            ip("link", "add", self.bridge, "type", "bridge")
            ip("link", "set", self.bridge, "up")
            for index, (name, link) in enumerate(zip(self.names, self.links, strict=True)):
                ip("netns", "add", name)
                ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("link", "set", link, "master", self.bridge, "up")
                ip("-n", name, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for name, link in zip(self.names, self.links, strict=True):
            left = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in map(int, left):
                os.kill(pid, signal.SIGKILL)
            ip("link", "del", link, check=False)
            ip("netns", "del", name, check=False)
        ip("link", "del", self.bridge, check=False)
        self.table.unlink()

    def unplug(self, index: int) -> None:
        ip("link", "set", self.links[index], "down")

    def plug(self, index: int) -> None:
        ip("link", "set", self.links[index], "up")

    def launch(
        self, index: int, directory: Path, settings: dict[str, object], log: Path, timeout: float, restarts: int = 0
    ) -> subprocess.Popen[bytes]:
        """Start torchrun with one rank on this host."""
        torchrun = [
            *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(self.names)}", "--nproc-per-node=1"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={self.address(0)}:{PORT}", f"--local-addr={self.address(index)}"),
            *("--rdzv-id=swamp", f"--max-restarts={restarts}", "--rdzv-conf=join_timeout=120,timeout=120"),
            *("-m", "swamp", "run", "digits", f"--out={directory}", f"--engines.distributed.timeout={timeout:g}", "--plain"),
            *(f"--{name}={value}" for name, value in settings.items()),
        ]
        # A process in such a namespace has its own mounts.
        script = 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"'
        inside = ["ip", "netns", "exec", self.names[index], "unshare", "--uts", "sh", "-c", script, str(self.table), f"host{index}"]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        with open(log, "ab") as file:
            return subprocess.Popen([*inside, *torchrun], env=environment, stdout=file, stderr=file, start_new_session=True)
