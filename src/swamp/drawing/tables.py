"""A table as data. Whoever shows it decides how: on a terminal, as Markdown, LaTeX or HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple


class Table(NamedTuple):
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    ranks: Mapping[tuple[int, int], int] = MappingProxyType({})  # by row and column; 1: best of those compared, 2: second best
