"""The page as text; tests/report/test_browser.py looks at it in a browser."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from swamp.core.mask import Mask
from swamp.report.page import charts
from swamp.report.page.document import digest, page_file, script_text, write_report
from swamp.report.page.sections import training
from swamp.store.directory import Store
from swamp.store.records import RowRecord
from tests.support.made_up_runs import LAYERS, add_analyses, make_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)> --><!-- ' \" ]]> \u2028 &lt;b&gt;"


class Outline(HTMLParser):
    """Every element with its attributes, and what stands in scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self.inside = tag == "script"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts.append(data)
            self.inside = False


def made(directories: list[Path], out: Path) -> str:
    write_report(directories, out)
    return out.read_text()


def text_of(markup: str) -> str:
    return re.sub(r"<.*?>", "", markup)


def data_of(page: str) -> dict[str, list[dict[str, object]]]:
    return json.loads(Outline(page).scripts[0])


def test_nothing_hostile_gets_out_of_its_place(tmp_path: Path) -> None:
    plain = made([make_run(tmp_path / "plain", recipe="digits")], tmp_path / "plain.html")
    (tmp_path / "mine.toml").write_text('base = "digits"')
    run = make_run(tmp_path / "a'<b>", notes=HOSTILE, recipe=str(tmp_path / "mine.toml"))
    header = json.loads((run / "run.json").read_text())["value"]
    header["config"]["recipe"] = HOSTILE  # no recipe of that name can be run, but a directory may say so
    Store(run).write_header(header)
    analysis_store = run / "analysis"
    analysis_store.mkdir()
    (analysis_store / "masks.json").write_text(HOSTILE)
    (run / "page.js").write_text("alert(1)")
    page = made([run], tmp_path / "report.html")
    outline, usual = Outline(page), Outline(plain)
    assert [tag for tag, _ in outline.elements].count("script") == [tag for tag, _ in usual.elements].count("script") == 2
    assert not [tag for tag, _ in outline.elements if tag in ("img", "link", "iframe", "object", "base", "form")]
    names = {name for _, attributes in outline.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("style", "src")]
    assert data_of(page)["series"][0]["recipe"] == HOSTILE
    assert outline.scripts[1] == usual.scripts[1] == script_text()
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in page


def test_the_policy_allows_the_pages_own_script_and_style_and_nothing_else(tmp_path: Path) -> None:
    page = made([make_run(tmp_path / "run")], tmp_path / "report.html")
    policies = [a["content"] for tag, a in Outline(page).elements if a.get("http-equiv") == "Content-Security-Policy"]
    script, style = digest(script_text()), digest(page_file("page.css"))
    assert policies == [f"default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"]
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page.replace(script_text(), ""))
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_sections_are_there_when_there_is_something_to_show(tmp_path: Path) -> None:
    def sections(*runs: Path) -> list[str | None]:
        page = made(list(runs), tmp_path / "report.html")
        assert re.findall(r'<a href="#([\w-]+)">', page) == [a["id"] for tag, a in Outline(page).elements if tag == "section"]
        return [a["id"] for tag, a in Outline(page).elements if tag == "section"]

    imp, swamp = make_run(tmp_path / "imp", "imp"), make_run(tmp_path / "swamp")
    empty = make_run(tmp_path / "empty", "imp", 1, rows=0, finished=False)
    usual = ["curves", "table", "cost", "training", "layers", "configuration", "runs"]
    assert sections(imp) == usual
    assert sections(empty) == ["configuration", "runs"]
    assert sections(swamp) == [*usual[:3], "particles", *usual[3:]]
    add_analyses(swamp)
    assert sections(swamp) == [*usual[:3], "particles", *usual[3:5], "connectivity", "curvature", "masks", "surface", *usual[5:]]


def test_unfinished_and_damaged_runs_are_said(tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", "imp")
    half = make_run(tmp_path / "half", rows=2, finished=False)
    bad = make_run(tmp_path / "bad", seed=1)
    (bad / "manifest.json").write_text("")
    page = made([whole, half, bad], tmp_path / "report.html")
    assert "Damaged, and not shown: 1 run" in page
    assert "manifest.json is damaged" in page
    assert f"2 rows so far; missing: cycles 2, 3, 4, 5. Go on with: swamp resume {half}" in text_of(page)
    spaced = make_run(tmp_path / "two words", rows=2, finished=False)
    assert f"swamp resume &#x27;{spaced}&#x27;" in text_of(made([spaced], tmp_path / "spaced.html"))
    assert "2 runs of 2 configurations, 1 finished" in page
    assert [series["label"] for series in data_of(page)["series"]] == ["imp", "swamp"]
    only = made([bad], tmp_path / "only.html")
    assert "No run could be read" in only
    assert "Damaged, and not shown: 1 run" in only


def test_captions_are_true_of_a_single_run(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", "imp")
    alone = made([one], tmp_path / "report.html")
    beside = made([one, make_run(tmp_path / "two", "imp", 1)], tmp_path / "report.html")
    said = ["Means over seeds", "Mean ± standard deviation", "mean over seeds"]
    assert [text in alone for text in said] == [False] * 3
    assert [text in beside for text in said] == [True] * 3
    assert "1 run, finished. Made" in alone
    assert "2 runs of 1 configuration, all finished. Made" in beside


def test_many_unfinished_runs_leave_the_results_in_sight(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"seed-{seed}", "imp", seed, rows=1, finished=False) for seed in range(10)]
    page = made(runs, tmp_path / "report.html")
    assert "Not finished: 10 runs" in page
    assert "<summary>2 more</summary>" in page
    assert all(f"swamp resume {run}" in text_of(page) for run in runs)


def test_a_cell_of_fewer_seeds_than_its_method_has_says_so(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "0", seed=0, rows=2, finished=False), make_run(tmp_path / "1", seed=1)]
    table = made(runs, tmp_path / "report.html").split('class="results"')[1].split("</table>")[0]
    assert [text_of(cell).endswith("1 of 2 seeds") for cell in re.findall("<td.*?</td>", table)] == [False, False, True, True, True, True]


def test_thirty_runs_of_the_papers_length_make_a_small_page(tmp_path: Path) -> None:
    """Fifteen configurations, two seeds; 14 cycles, 150 epochs: SWAMP's four particles give 8,400 epochs a run."""
    names = ["swamp"] * 5 + ["imp"] * 10
    runs = [
        make_run(tmp_path / f"{index}-{seed}", name, seed, cycles=13, epochs=150, cycle__epochs=10 + index)
        for index, name in enumerate(names)
        for seed in (0, 1)
    ]
    page = made(runs, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 6e6 / 2
    data = data_of(page)
    assert len(data["series"]) == 15
    assert len(data["training"]) == 30
    assert sum(bool(series["shown"]) for series in data["series"]) == charts.FEW
    assert sum(len(curve["loss"]) for run in data["training"] for curve in run["curves"]) == 10 * 14 * 4 * 150 + 20 * 14 * 150  # type: ignore[union-attr,attr-defined]
    assert len(data["rates"]) == 1  # shared by all


def test_values_are_those_of_the_seeds_that_got_so_far(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "0", seed=0, rows=2, finished=False), make_run(tmp_path / "1", seed=1)]
    points = data_of(made(runs, tmp_path / "report.html"))["series"][0]["points"]
    assert [point["metrics"]["accuracy"]["seeds"] for point in points[:3]] == [[0, 1], [0, 1], [1]]
    assert [len(point["metrics"]["accuracy"]["values"]) for point in points[:3]] == [2, 2, 1]


def test_longer_curves_are_thinned_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MAX_EPOCHS", 100)
    page = made([make_run(tmp_path / "run", "imp", epochs=50)], tmp_path / "report.html")
    curves = data_of(page)["training"][0]["curves"]
    assert {len(curve["loss"]) for curve in curves} == {17}  # type: ignore[attr-defined]
    assert "One epoch in 3 is drawn" in page


def test_evaluations_within_a_training_are_drawn_as_errors_where_there_are_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", "imp", epochs=4, evaluated=(1, 3))
    page = made([run, make_run(tmp_path / "other", "snip")], tmp_path / "report.html")
    data: Any = data_of(page)
    assert data["evaluated"] == {
        "validation.accuracy": {"label": "validation error %", "digits": 2},
        "validation.nll": {"label": "validation NLL", "digits": 4},
    }
    drawn, plain = (series["curves"][0]["evaluated"] for series in data["training"])
    assert drawn == {"validation.accuracy": [[2, 40.0], [4, 20.0]], "validation.nll": [[2, 0.5], [4, 0.25]]}
    assert plain == {}
    ticket = make_run(tmp_path / "ticket", "imp", epochs=1, evaluated=(0,), finished=False)
    curves = (ticket / "metrics.jsonl").read_text()
    (ticket / "metrics.jsonl").write_text(re.sub("cycle 0, particle 0", "ticket", curves.splitlines()[0]) + "\n")
    data = data_of(made([ticket], tmp_path / "ticket.html"))
    assert data["evaluated"] == {}  # A single value is no curve.
    assert "and its evaluations (the setting evaluate_every)" in page
    assert "its evaluations" not in made([tmp_path / "other"], tmp_path / "without.html")
    monkeypatch.setattr(training, "MAX_EPOCHS", 20)  # a half of 40 epochs
    data = data_of(made([run], tmp_path / "thinned.html"))
    assert data["training"][0]["curves"][0]["evaluated"]["validation.nll"] == [[4, 0.25]]


def test_imp_and_swamp_take_the_same_colours_whoever_is_beside_them(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("dst", "imp", "rigl", "swamp")]
    data: Any = data_of(made(runs, tmp_path / "report.html"))
    assert data["names"] == ["imp", "swamp", "dst", "rigl"]


def test_layers_stand_in_the_order_of_the_network_without_its_masks_too(swamp_run: Path, tmp_path: Path) -> None:
    """Published runs have no masks. Their header names the layers."""
    shutil.copytree(swamp_run, tmp_path / "run", ignore=shutil.ignore_patterns("objects", "cycle-*"))
    page = made([tmp_path / "run"], tmp_path / "a.html")
    assert data_of(page)["series"][0]["layers"] == (Store(tmp_path / "run").header() or {})["layers"]
    assert data_of(page)["series"][0]["layers"][0] == "stem.weight"
    assert "weights, from the network’s input to its output" in page


def test_layers_stand_in_the_order_of_the_network_where_a_mask_says_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "imp", finished=False)
    page = made([run], tmp_path / "a.html")
    assert data_of(page)["series"][0]["layers"] == sorted(LAYERS)
    assert "weights, sorted by name." in page
    mask = Mask({name: torch.ones(2, 2, dtype=torch.bool) for name in LAYERS})
    Store(run).save_mask(mask)
    rows = json.loads((run / "results.json").read_text())
    rows[0]["mask"] = mask.digest
    rows[0]["checksum"] = msgspec.convert(rows[0], RowRecord).expected_checksum()
    (run / "results.json").write_text(json.dumps(rows))
    page = made([run], tmp_path / "b.html")
    assert data_of(page)["series"][0]["layers"] == LAYERS
    assert "weights, from the network’s input to its output." in page


def test_numbers_that_are_none_beside_the_results_are_passed_over(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "imp", epochs=0, finished=False)
    huge = "9" * 400
    lines = [
        f'{{"training": "ticket", "epoch": {epoch}, "loss": {loss}, "learning_rate": 0.1}}\n' for epoch, loss in enumerate((huge, 0.5))
    ]
    (run / "metrics.jsonl").write_text("".join(lines))
    with open(run / "timing.jsonl", "a") as file:
        file.write(f'{{"what": "row 1", "seconds": {huge}}}\n{{"what": "row 2", "seconds": 80}}\n')
    page = made([run], tmp_path / "report.html")
    assert data_of(page)["training"][0]["curves"][0]["loss"] == [None, 0.5]  # type: ignore[index]
    assert "6 rows in 1 min 24 s" in page
