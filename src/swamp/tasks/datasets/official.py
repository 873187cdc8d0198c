"""Finding a data set below the folder that the user names, and checking that its files are the published ones."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "SWAMP_DATA"

# As the authors published them (and, for Fashion-MNIST, of the unpacked files too: some distributions pack them anew).
MD5S = {
    "cifar-10-batches-py/data_batch_1": ("c99cafc152244af753f735de768cd75f",),
    "cifar-10-batches-py/data_batch_2": ("d4bba439e000b95fd0a9bffe97cbabec",),
    "cifar-10-batches-py/data_batch_3": ("54ebc095f3ab1f0389bbae665268c751",),
    "cifar-10-batches-py/data_batch_4": ("634d18415352ddfa80567beed471001a",),
    "cifar-10-batches-py/data_batch_5": ("482c414d41f54cd18b22e5b47cb7c3cb",),
    "cifar-10-batches-py/test_batch": ("40351d587109b95175f43aff81a1287e",),
    "cifar-100-python/train": ("16019d7e3df5f24257cddd939b257f8d",),
    "cifar-100-python/test": ("f0ef6b0ae62326f3e7ffdfab6717acfc",),
    "fashion-mnist/train-images-idx3-ubyte.gz": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    "fashion-mnist/train-labels-idx1-ubyte.gz": ("25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"),
    "fashion-mnist/t10k-images-idx3-ubyte.gz": ("bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"),
    "fashion-mnist/t10k-labels-idx1-ubyte.gz": ("bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"),
}


@dataclass(frozen=True)
class Official:
    """A data set as its authors give it away."""

    title: str
    url: str
    folders: tuple[str, ...]  # names that the folder goes by
    contents: str  # what such a folder holds, for people
    marker: str  # a file or folder that is in it and in no other data set's
    archive: str = ""  # the file as downloaded, where that can be read as it is

    def find(self, data: str) -> Path:
        """The data set's folder, or its archive: below the data folder, or the data folder itself."""
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
        """Refuse a file whose MD5 is not a published one; `forms` are the file as it is, and unpacked where that has a checksum."""
        found = [hashlib.md5(form, usedforsecurity=False).hexdigest() for form in forms]
        published = MD5S[f"{self.folders[0]}/{place.name}"]
        if not set(found) & set(published):
            raise self.damaged(place, f"its MD5 is {found[0]}, not {published[0]}")

    def damaged(self, place: Path, why: object) -> ValueError:
        return ValueError(f"{place} is damaged or not the published file ({why}); get it again from {self.url}")

    def read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{path} is missing; {self.wanted}") from None
