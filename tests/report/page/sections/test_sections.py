from __future__ import annotations

from pathlib import Path

import pytest

from swamp.drawing.markup import Section
from swamp.report.page import sections
from swamp.report.page.content import PageContent
from tests.support.made_up_runs import add_analyses, make_run, read_series

BUILT_IN = ["Curves", "Table", "Cost", "Particles", "Training", "Layers", "Connectivity", "Curvature", "Surface", "Configuration", "Runs"]

ADDED = """
from swamp.drawing.markup import section

order = 25

def show(content):
    return section("Seeds", "Seeds", "All seeds.", data={"seeds": [series.seeds for series in content.series]})
"""


def made(run: Path) -> list[Section]:
    series = read_series([run])
    return sections.make_sections(PageContent(series, []))


def test_a_section_is_added_by_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run")
    add_analyses(run)
    assert [section.name for section in made(run) if section.name != "Masks"] == BUILT_IN
    (tmp_path / "seeds_of_series.py").write_text(ADDED)
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    added = made(run)
    assert [section.name for section in added[:4]] == ["Curves", "Table", "Seeds", "Cost"]
    assert added[2].data == {"seeds": [[0]]}


def test_without_runs_there_are_no_sections() -> None:
    assert sections.make_sections(PageContent([], [])) == []
