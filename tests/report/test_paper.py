from __future__ import annotations

from pathlib import Path

from swamp.report.document import write_report
from swamp.report.paper import paper_of
from swamp.runs.config import build_config
from swamp.runs.recipes import recipe_texts
from tests.report.synthetic import make_run


def test_every_file_belongs_to_a_recipe_and_names_cycles_that_it_has() -> None:
    found = {recipe: paper for recipe in recipe_texts() if (paper := paper_of(recipe))}
    assert found
    for recipe, paper in found.items():
        cycles = build_config(recipe).pruning.cycles
        assert all(0 <= int(c) <= cycles for methods in paper.metrics.values() for numbers in methods.values() for c in numbers)


def test_the_papers_numbers_stand_beside_ours(tmp_path: Path) -> None:
    paper = paper_of("cifar10-wrn28-2")
    assert paper
    assert paper.text("accuracy", "swamp", 10) == "94.73 ± 0.10"  # digits as printed
    assert paper.text("accuracy", "swamp", 9) == paper.text("nll", "swamp", 10) == paper.text("accuracy", "dst", 10) == ""
    run = make_run(tmp_path / "run", recipe="cifar10-wrn28-2", cycles=13, cycle__epochs=2)
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for cycle in ("94.74 ± 0.04", "94.88 ± 0.09", "94.73 ± 0.10", "94.23 ± 0.11"):
        assert page.count(f"<small>paper {cycle}</small>") == 1
