"""GLUE's MRPC and RTE (Wang et al. 2018): pairs of sentences in tab-separated files.

The labels of GLUE's own test sets are not public, so the development sets are the test sets here, as in the paper. The test set of the
paraphrase corpus that MRPC was made from does have labels, and is offered as a further test set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from swamp.tasks.datasets.dataset import Download, Official, Pairs, TextSet


@dataclass(frozen=True)
class GlueFormat:
    """The file format of one of GLUE's tasks."""

    official: Official
    columns: tuple[str, str, str]  # the names of the columns of the two sentences and of the label
    classes: tuple[str, ...]  # the labels in the file, in the order of the classes
    counts: dict[str, tuple[int, ...]]  # the published number of examples of each class in each file


def _official(name: str, contents: str, *downloads: Download) -> Official:
    return Official(
        title=f"GLUE's {name}",
        url="https://gluebenchmark.com/tasks",
        folders=(name, f"glue/{name}", f"glue_data/{name}"),
        contents=contents,
        marker="train.tsv",
        downloads=downloads,
    )


MRPC = GlueFormat(
    _official("MRPC", "train.tsv (3,668 rows) and dev.tsv (408) with the columns Quality, #1 String and #2 String"),
    columns=("#1 String", "#2 String", "Quality"),
    classes=("0", "1"),
    counts={"train.tsv": (1194, 2474), "dev.tsv": (129, 279), "msr_paraphrase_test.txt": (578, 1147)},
)
RTE = GlueFormat(
    _official(
        "RTE",
        "train.tsv (2,490 rows) and dev.tsv (277) with the columns sentence1, sentence2 and label",
        Download("https://dl.fbaipublicfiles.com/glue/data/RTE.zip", "RTE.zip", is_unpacked=True),
    ),
    columns=("sentence1", "sentence2", "label"),
    classes=("entailment", "not_entailment"),
    counts={"train.tsv": (1249, 1241), "dev.tsv": (146, 131)},
)


def read_mrpc(data: str) -> TextSet:
    folder = MRPC.official.find(data)
    splits = {"train": read_pairs(MRPC, folder / "train.tsv"), "test": read_pairs(MRPC, folder / "dev.tsv")}
    return TextSet(splits, 2, "f1", {"mrpc-test": partial(read_pairs, MRPC, folder / "msr_paraphrase_test.txt")})


def read_rte(data: str) -> TextSet:
    folder = RTE.official.find(data)
    return TextSet({"train": read_pairs(RTE, folder / "train.tsv"), "test": read_pairs(RTE, folder / "dev.tsv")}, 2, "accuracy")


TEXT_SETS = {"mrpc": read_mrpc, "rte": read_rte}
OFFICIAL_SETS = {"mrpc": MRPC.official, "rte": RTE.official}  # MRPC's corpus comes from Microsoft, as an installer.


def read_pairs(file_format: GlueFormat, path: Path) -> Pairs:
    """Read a file's examples. Only tabs and newlines separate, because sentences contain bare quotes and Unicode line separators."""
    try:
        lines = file_format.official.read(path).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise file_format.official.damaged(path, error) from None
    names, *rows = [line.rstrip("\r").split("\t") for line in lines if line.strip()] or [[]]
    if missing := [column for column in file_format.columns if column not in names]:
        raise ValueError(
            f"{path} has no column {missing[0]!r} (its first line names {', '.join(names) or 'none'}); {file_format.official.wanted}"
        )
    positions = [names.index(column) for column in file_format.columns]
    first, second, labels = [], [], []
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise file_format.official.damaged(path, f"row {number} has {len(row)} fields instead of {len(names)}")
        one, other, label = (row[position] for position in positions)
        if label not in file_format.classes:
            raise file_format.official.damaged(
                path, f"row {number} has the label {label!r}, which is none of {', '.join(file_format.classes)}"
            )
        first.append(one)
        second.append(other)
        labels.append(file_format.classes.index(label))
    _check_counts(file_format, path, labels)
    return Pairs(first, second, torch.tensor(labels))


def _check_counts(file_format: GlueFormat, path: Path, labels: list[int]) -> None:
    found, published = tuple(labels.count(index) for index in range(len(file_format.classes))), file_format.counts[path.name]
    if found != published:
        counted = " and ".join(f"{count:,} labelled {label}" for count, label in zip(found, file_format.classes, strict=True))
        wanted = " and ".join(f"{count:,}" for count in published)
        raise file_format.official.damaged(path, f"it has {counted}, not {wanted}")
