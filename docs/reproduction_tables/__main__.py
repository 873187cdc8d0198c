"""Writes the tables of README.md, docs/reproduction.md and docs/reproduction/*.md from docs/results: python -m docs.reproduction_tables"""

from __future__ import annotations

from docs.reproduction_tables.pages import PAGES, with_tables

for path in PAGES:
    path.write_text(with_tables(path.read_text()))
