"""Copies a run with only the weights that continuing it takes, so that it can be moved to another machine.

A stopped run is replayed as for a resume: what is stored is found, and what is not is planned. The weights that the planned part begins
with are copied. All others are marked in the copy as dropped, so that nothing that depended on them is computed again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from swamp.core.job import Solution
from swamp.methods.method import Keep
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import PreparedRun
from swamp.runs.replay import ReplayContext, no_weights
from swamp.runs.stored_init import kept_init_key
from swamp.store import formats
from swamp.store.directory import COPY, HEADER, Store, began_with
from swamp.store.files import make_directory
from swamp.store.finding import cache_part, make_cache
from swamp.store.objects import check_value, encode_value
from swamp.store.records import read_rows

FILES = ("config.toml", "results.json", "metrics.jsonl", "timing.jsonl", COPY, HEADER)  # With the header, a directory holds a run.
ANALYSES = ("analysis", "analysis/objects")


def needed_weights(run: PreparedRun) -> set[str]:
    """Return the keys of the weights that continuing a run takes. A finished run takes none but those of a module of the user's own."""
    own = {key for key in [kept_init_key(run.task, run.config.seed)] if key}
    if run.store.finished():
        return own
    ctx, num_rows = ReplayContext(run, run.store), len(read_rows(run.directory))
    for index, row in enumerate(run.config.method_module.run(ctx, run.config.selected("method"))):
        if index >= num_rows:  # It is still to be evaluated.
            ctx.needed |= {row.solution.key, *(member.key for member in row.members)}
    return ctx.needed | own


def kept_weights(run: PreparedRun, keep: Keep | None) -> set[str]:
    """Return the keys of the weights of finished rows that are kept; none without `keep`."""
    rows = read_rows(run.directory) if keep else []
    averages = {row.solution for row in (rows[-1:] if keep == "last" else rows)}
    return averages | ({key for row in rows for key in row.particles} if keep == "all" else set())


def ticket_weights(run: PreparedRun) -> set[str]:
    """Return the key of the ticket's weights, if the run has a ticket. Other runs of its seed begin with the same."""
    maker = JobMaker(run.config, run.task)
    return {maker.ticket_job(Solution(maker.init_key, (), no_weights)).key} if maker.has_ticket else set()


def copy_run(run: PreparedRun, target: Path, keep: Keep | None, with_ticket: bool) -> Store:
    """Copy a run with the weights that continuing it takes, and with those of its rows that `keep` keeps. Return the copy."""
    store, copy = run.store, Store(target)
    wanted = needed_weights(run) | kept_weights(run, keep) | (ticket_weights(run) if with_ticket else set())
    with copy.locked():
        for name in (store.folder / "objects").names():
            _copy_object(store, copy, name, wanted)
        for folder in ("work", *ANALYSES):
            for name in (store.folder / folder).names():
                if name.endswith((".checkpoint", ".json", ".npz")):
                    _copy_file(store, copy, f"{folder}/{name}")
        for name in FILES:
            _copy_file(store, copy, name)
        _copy_links(store, copy)
        if store.finished():
            copy.finish()
    return copy


def _copy_file(store: Store, copy: Store, name: str) -> None:
    if store.folder.has(name):
        copy.folder.write(name, store.folder.read(name), copy.folder / "work")


def _copy_object(store: Store, copy: Store, name: str, wanted: set[str]) -> None:
    """Copy an object, unless it is weights that are not wanted. The record of weights that are not copied says that they were dropped."""
    path = f"objects/{name}"
    key, _, suffix = name.rpartition(".")
    if suffix != "json":
        if key in wanted or formats.read_meta(store.folder, path).get("kind") == "mask":
            _copy_file(store, copy, path)
        return
    data = store.folder.read_text(path)
    value = check_value(data, store.root / path)
    is_record = isinstance(value, dict) and {"dropped", "history"} <= value.keys()
    if is_record and not value["dropped"] and not (key in wanted and store.keeps_arrays(key)):
        if key in wanted:
            return  # The weights are lost, and are made again.
        data = encode_value(key, {**value, "dropped": True})
    copy.folder.write(path, data, copy.folder / "work")


def _copy_links(store: Store, copy: Store) -> None:
    for row in read_rows(store.root):
        copy.link_row(row.cycle, row.mask, row.solution, row.particles)


def link_equal(directories: Iterable[Path]) -> None:
    """Make equal weights and masks in these directories one file on the disk with several names, which `tar` stores once."""
    first: dict[tuple[str, str], Path] = {}
    for path in sorted(path for directory in directories for path in directory.rglob("objects/*.safetensors")):
        with path.open("rb") as file:
            twin = first.setdefault((path.name, hashlib.file_digest(file, "sha256").hexdigest()), path)
        if not path.samefile(twin):  # Renaming one name of a file to another name of it does nothing, and would leave both.
            beside = path.with_suffix(".link")
            os.link(twin, beside)
            os.replace(beside, path)


def copy_runs(runs: Sequence[PreparedRun], targets: Sequence[Path], cache: Path | None = None, keep: Keep | None = None) -> None:
    """Copy runs. If a new cache is given, what the copies hold is put there, with the ticket that further runs begin with."""
    for target in (*targets, *([cache] if cache else [])):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ValueError(f"{target} is there already; choose another directory for the copy")
    with ExitStack() as stack:
        for run in runs:  # If one of them is at work, none is copied.
            stack.enter_context(run.store.locked())
        for target in targets:
            make_directory(target.parent)
        copies = [copy_run(run, target, keep, with_ticket=cache is not None) for run, target in zip(runs, targets, strict=True)]
    for copy in copies if cache else ():
        header = copy.header()
        assert cache
        assert header
        make_cache(part := cache_part(cache, *began_with(header)))
        Store(copy.root, part, adds=not header.get("mixed")).share()
    link_equal([*targets, *([cache] if cache else [])])
