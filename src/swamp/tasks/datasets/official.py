"""Finds a data set below the folder that the user names, and checks that its files are the published ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "SWAMP_DATA"


@dataclass(frozen=True)
class Official:
    """A data set in the form in which its authors publish it."""

    title: str
    url: str
    folders: tuple[str, ...]  # the names that the folder may have
    contents: str  # what such a folder holds, for messages
    marker: str  # a file or folder in it that no other data set has
    archive: str = ""  # the downloaded file, where it can be read without unpacking
    md5s: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the published checksums of its files

    def find(self, data: str) -> Path:
        """Return the data set's folder or archive, which is below the data folder or is that folder itself."""
        named = data or os.environ.get(VARIABLE, "")
        if not named:
            raise ValueError(f"{self.title} is read from a folder that you name with --data DIR or {VARIABLE}; {self.wanted}")
        root = Path(named).expanduser()
        for folder in (*(root / name for name in self.folders), root):
            if (folder / self.marker).exists():
                return folder
        if self.archive and (root / self.archive).is_file():
            return root / self.archive
        looked = [f"{name}/{self.marker}" for name in self.folders] + ([self.archive] if self.archive else [])
        problem = (
            f"there is no {' or '.join(looked)} in {root}"
            if root.is_dir()
            else f"{root} is no folder (a run from another machine looks where {VARIABLE} says)"
        )
        raise ValueError(f"{self.title} was not found: {problem}; {self.wanted}")

    @property
    def wanted(self) -> str:
        archive = f", or {self.archive} as downloaded" if self.archive else ""
        return f"DIR should contain {self.folders[0]}/ with {self.contents}{archive}; get it from {self.url}"

    def check(self, place: Path, *forms: bytes) -> None:
        """Raise an error unless the MD5 of one of the `forms` (the file as it is, and perhaps unpacked) is a published one."""
        found = [hashlib.md5(form, usedforsecurity=False).hexdigest() for form in forms]
        published = self.md5s[place.name]
        if not set(found) & set(published):
            raise self.damaged(place, f"its MD5 is {found[0]}, not {published[0]}")

    def damaged(self, place: Path, why: object) -> ValueError:
        return ValueError(f"{place} is damaged or not the published file ({why}); get it again from {self.url}")

    def read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{path} is missing; {self.wanted}") from None
