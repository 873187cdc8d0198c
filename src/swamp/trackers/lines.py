"""Text files that grow by whole lines."""

from __future__ import annotations

import os
from pathlib import Path


class Lines:
    """A text file to which lines are added. A partial line that a killed process left is cut off when the file is opened again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            os.truncate(path, len(whole))
        self.before = whole.decode().splitlines()

    def add(self, line: str) -> None:
        with open(self.path, "ab", buffering=0) as file:
            file.write(f"{line}\n".encode())
