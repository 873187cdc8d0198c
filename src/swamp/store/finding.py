"""Finds run directories and caches: which runs a directory stands for, and whether a file lies in one."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import torch

from swamp.store import files
from swamp.store.directory import COPY, HEADER

LOST_AND_FOUND = "lost+found"  # A file system keeps one at its root, which only the administrator may open.


def holds_header(directory: Path) -> bool:
    """Return whether a directory has a run.json or the copy of one, of whatever kind and state. One that is closed to us may have one."""
    return any(_may_exist(directory / name) for name in (HEADER, COPY))


def _may_exist(path: Path) -> bool:
    try:
        return bool(os.lstat(path))
    except PermissionError:
        return True  # Reading it says so. A run of a group must not be left out in silence.
    except (OSError, ValueError):
        return False


def is_in_run_directory(file: Path) -> bool:
    """Return whether a file lies somewhere in a run directory, also in one whose run.json is lost. One that is closed to us is none."""
    parents = {parent for path in (file.absolute(), file.resolve()) for parent in path.parents}
    kinds = (HEADER,), (COPY,), ("config.toml", "objects")
    return any(all(os.path.lexists(parent / name) for name in names) for names in kinds for parent in parents)


def runs_in(directory: Path) -> list[Path]:
    """Return the run directories that a directory stands for: itself, or the runs right below it (a group of seeds)."""
    if holds_header(directory):
        return [directory]
    entries = [path for path in directory.iterdir() if path.name != LOST_AND_FOUND] if directory.is_dir() else []
    below = sorted(filter(holds_header, entries), key=lambda path: number_key(path.name))
    if not below:
        raise ValueError(f"{directory} {'holds no run' if directory.exists() else 'does not exist'}{_lost(directory)}")
    return below


def number_key(name: str) -> tuple[list[tuple[str, int, str]], str]:
    """Return a sort key by which numbers in names count as numbers, and capitals as small letters.

    >>> sorted(["seed-10", "seed-2", "IMP", "imp-1", "dst"], key=number_key)
    ['dst', 'IMP', 'imp-1', 'seed-2', 'seed-10']
    """
    parts = re.split(r"0*([0-9]+)", name.lower())  # every second one is a number, the longer the greater
    return [("", len(part), part) if index % 2 else (part, 0, "") for index, part in enumerate(parts)], name


def _lost(directory: Path) -> str:
    """Say what can be done about a directory that has no run.json."""
    if (directory / "config.toml").exists() and (directory / "objects").exists():
        again = f"swamp run {shlex.quote(str(directory / 'config.toml'))} --out ANOTHER (and --task for a task of your own)"
        return f" any more: run.json and its copy .run.json are gone; put one of them back from a backup, or run it anew: {again}"
    return " (no run.json in it or right below it)" if directory.exists() else ""


def cache_part(cache: Path, device: str, torch_version: str = torch.__version__) -> Path:
    """Return the part of a shared cache for a torch and a kind of device: results of others differ in their last bits.

    A cache that cannot be used is a ValueError. Nothing is written; `make_cache` makes the directory.
    """
    if os.access(cache, os.X_OK) and holds_header(cache):
        raise ValueError(f"the cache {cache} is a run directory; a cache is a directory of its own")
    name = f"torch-{torch_version}-{device.split(':')[0]}"
    if not re.fullmatch(r"[\w.+-]+", name):  # A run directory that a stranger sent may name any torch and any device.
        raise ValueError(f"the cache {cache} has no part for {name!r}: that is no version of torch and no kind of device")
    existing = next(path for path in (cache, *cache.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"the cache {cache} cannot be used: {existing} is not a directory")
    return cache / name


def make_cache(part: Path) -> None:
    """Make the directory of a cache that `cache_part` returned."""
    try:
        files.make_directory(part / "objects")
    except OSError as error:
        raise ValueError(f"the cache {part.parent} cannot be used: {error.strerror}") from None
