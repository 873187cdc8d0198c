"""The documentation's snippets run, and what it names is there."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import swamp
from docs.reproduction_tables import pages
from swamp.analyses import analyses
from swamp.cli import make_app
from swamp.commands.arguments import split_arguments
from swamp.commands.run import run
from swamp.report.figures.gallery import FIGURES
from swamp.results.stored_run import read_run
from swamp.runs import config
from swamp.runs.config import build_config
from swamp.runs.grid import expand, read_grid
from swamp.trackers.tracker import Point
from tests.support.cli import FLAGS, call, run_all

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
START = (DOCS / "start.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run_example(example: str, short: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a snippet as a script; a short one with one epoch a cycle and in this process."""
    if short:
        example, changed = re.subn(r'("(?:cycle\.)?epochs": )\d+', r"\g<1>1", example)
        assert changed
        monkeypatch.setattr(config, "default_engine", lambda device: "sequential")
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(example, "snippet", "exec"), scope)
    return scope


SHORT_AND_WHOLE = pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["short", "whole"])


def test_the_readme_is_short_and_begins_with_a_command() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 120] == []
    assert any(line.startswith("make demo") for line in lines[:20])


@SHORT_AND_WHOLE
def test_the_examples_of_the_readme_and_of_the_first_page_run(
    short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (own_model,) = blocks("python", README)
    run_example(own_model, short, monkeypatch)
    assert re.search(r"^ +3 +80\.00 +1181 ", capsys.readouterr().out, re.MULTILINE)
    assert (tmp_path / "sparse.pt").exists()
    (recipe,) = blocks("python", START)
    run_example(recipe, short, monkeypatch)
    assert "25572 of 102288 weights survive" in capsys.readouterr().out


@SHORT_AND_WHOLE
def test_the_examples_of_custom_tasks_run(
    short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only whole ones have trained for long enough to be right."""
    monkeypatch.chdir(tmp_path)
    cnn, further, transformer = blocks("python", (DOCS / "custom.md").read_text())
    run_example(cnn + further, short, monkeypatch)
    assert all((tmp_path / name).exists() for name in ("cnn.pt", "cnn.swamp", "cnn.swamp.md", "runs/cnn.html"))
    shown = capsys.readouterr().out
    assert re.search(r"^ +3 +80\.01 +950 +" + ("" if short else "9"), shown, re.MULTILINE)
    assert "on the validation split, by which it was chosen" in shown
    assert "4.weight" in shown
    rows = run_example(transformer, short, monkeypatch)["found"].rows
    assert rows[-1].metric == "accuracy"
    assert rows[-1].metrics["accuracy"] > (0.2 if short else 0.9)
    assert set(rows[-1].densities) == {
        "encoder.self_attn.in_proj_weight",
        "encoder.self_attn.out_proj.weight",
        "encoder.linear1.weight",
        "encoder.linear2.weight",
    }


def test_the_method_of_ones_own_runs_as_a_package(tmp_path: Path) -> None:
    (module,) = blocks("python", (DOCS / "methods.md").read_text())
    (package,) = blocks("toml", (DOCS / "custom.md").read_text())
    (name, value), *_ = tomllib.loads(package)["project"]["entry-points"]["swamp.methods"].items()
    (tmp_path / f"{value}.py").write_text(module)
    information = tmp_path / "movement-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: movement\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[swamp.methods]\n{name} = {value}\n")
    paths = os.pathsep.join(map(str, [tmp_path, ROOT / "tests" / "support" / "plugin"]))
    lines = [["run", "digits", *FLAGS, "--method", name, "--out", str(tmp_path / "run")], ["show", str(tmp_path / "run")]]
    ran, shown = run_all(lines, {**os.environ, "PYTHONPATH": paths})
    assert (ran[0], shown[0]) == (0, 0), ran[2] + shown[2]
    assert "75.00" in shown[1]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["value"]["method_code"]
    missing = (
        f"the run began with the method '{name}', which is not known here: install the package that it comes from .its module is {value}."
    )
    with pytest.raises(ValueError, match=missing):
        read_run(tmp_path / "run")  # The package is not installed for this process.


def test_toml_snippets_are_recipes(tmp_path: Path) -> None:
    for block in blocks("toml", START):
        (tmp_path / "mine.toml").write_text(block)
        config = build_config(str(tmp_path / "mine.toml"))
        assert config.pruning.cycles == tomllib.loads(block)["pruning"]["cycles"]


def test_the_grid_in_the_documentation_is_a_grid(tmp_path: Path) -> None:
    (block,) = blocks("toml", (DOCS / "ablations.md").read_text())
    (tmp_path / "rates.toml").write_text(block)
    sweep = expand(read_grid(tmp_path / "rates.toml"), tmp_path)
    assert len(sweep.runs) == 3 * 5  # of six combinations one is excluded


def test_commands_exist_and_take_the_arguments_shown() -> None:
    shown = [block for page in (README, START, (DOCS / "index.md").read_text()) for block in blocks("bash", page)]
    commands = [line.split("#")[0].split() for block in shown for line in block.splitlines() if line.startswith("swamp ")]
    assert commands
    for _, name, *arguments in commands:
        _, bound, _ = make_app().parse_args([name, *arguments], exit_on_error=False, print_error=False)
        if name == "run":
            split_arguments(bound.args, run)
    every = {name for name in make_app() if not name.startswith("-")}
    assert set(re.findall(r"`swamp ([\w-]+)", README.partition("## Commands")[2])) == every


def test_following_shows_commands_and_a_tracker_that_work(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "following.md").read_text()
    inline = [text.split() for text in re.findall(r"`(swamp (?:figure|ensemble|analyse) [^`…]+)`", page)]
    assert len(inline) >= 8
    for _, *arguments in inline:
        make_app().parse_args(arguments, exit_on_error=False, print_error=False)
    commands = [line.split("#")[0].split() for block in blocks("bash", page) for line in block.splitlines() if line.startswith("swamp ")]
    assert {name for _, name, *_ in commands} == {"watch", "run", "compare", "figure"}
    for _, *arguments in commands:
        make_app().parse_args(arguments, exit_on_error=False, print_error=False)
    (block,) = blocks("python", page)
    scope: dict[str, Any] = {}
    exec(compile(block, "following.md", "exec"), scope)
    tracker = scope["track"](None)
    tracker.log(Point("cycle 0, particle 1", "epoch", 3, {"loss": 0.5}))
    tracker.close(False)
    assert capsys.readouterr().out == "epoch 3 {'loss/cycle 0, particle 1': 0.5}\nstopped\n"
    shown = set(re.findall(r"`(\w+)`", page.partition("| name | what it shows |")[2].partition("Colours")[0]))
    assert {*FIGURES, *analyses()} <= shown


def test_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make ([a-z-]+)", README)) <= set(targets)


def anchors(page: Path) -> set[str]:
    """Anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_exist(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.is_file(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def test_files_named_in_the_documentation_exist() -> None:
    assert not re.search(r"\b(RESULTS|TODO|TBD|FIXME)\b", README)
    for page in PAGES:
        if page.parent.name != "log":  # the diary names files of its day
            for name in re.findall(r"`((?:src|docs|tests|benchmarks)/[\w/.-]+)`", page.read_text()):
                assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_the_hops_through_the_code_exist() -> None:
    """docs/architecture/commands.md follows three commands through the code: `file.py: function`."""
    hops = re.findall(r"`([\w/]+\.py): ([\w.]+)`", (DOCS / "architecture" / "commands.md").read_text())
    assert len(hops) > 30
    for file, name in hops:
        tree, scope = ast.parse((ROOT / "src" / "swamp" / file).read_text()), None
        for part in name.split("."):
            body = tree.body if scope is None else scope.body
            found = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part]
            assert found, f"docs/architecture/commands.md names {name} of {file}"
            scope = found[0]


def test_pictures_are_shown_somewhere() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [picture.name for picture in (DOCS / "pictures").iterdir() if picture.name not in text] == []


def test_every_page_is_on_the_site_and_on_its_front_page() -> None:
    site = (ROOT / "zensical.toml").read_text()
    front = (DOCS / "index.md").read_text()
    for page in DOCS.rglob("*.md"):
        name = str(page.relative_to(DOCS))
        assert f'"{name}"' in site, f"zensical.toml lacks {name}"
        if page.parent.name in ("reproduction", "architecture"):
            over = f"{page.parent.name}.md"
            assert f"({name})" in (DOCS / over).read_text(), f"docs/{over} lacks {name}"
        elif name != "index.md" and page.parent.name != "log":
            assert f"({name})" in front, f"docs/index.md lacks {name}"


def test_the_api_page_has_every_public_name() -> None:
    shown = re.findall(r"^::: swamp\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(set(swamp.__all__) - {"__version__"})


def test_the_public_names_are_documented() -> None:
    for name in swamp.__all__:
        if name != "__version__":
            assert getattr(swamp, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = swamp.nonsense  # type: ignore[attr-defined]


def test_the_page_of_methods_is_what_the_code_says() -> None:
    with_methods = runpy.run_path(str(DOCS / "methods_page.py"))["with_methods"]
    page = (DOCS / "methods.md").read_text()
    assert page == with_methods(page), "write docs/methods.md anew: python docs/methods_page.py"


def test_the_examples_of_own_loops_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    loop, adapters, masked = blocks("python", (DOCS / "loops.md").read_text())  # The second one imports what need not be installed.
    for module, name in re.findall(r"from ([\w.]+) import (\w+)", adapters):
        assert f"class {name}(" in (DOCS.parent / "src" / f"{module.replace('.', '/')}.py").read_text()
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(loop + masked, "loops.md", "exec"), scope)
    assert "36% sparse: " in capsys.readouterr().out
    sparse = scope["sparse"]
    assert all(not sparse.model.get_parameter(name)[~alive].any() for name, alive in sparse.mask.layers.items())


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_published_tables_are_what_the_stored_results_say(page: Path) -> None:
    text = page.read_text()
    assert text == pages.with_tables(text), "write the tables anew: python -m docs.reproduction_tables"


def test_every_table_of_the_reproduction_is_made_from_stored_results() -> None:
    """Only the verdicts and the list of pages are written by hand; their numbers and those of the prose are the stored ones."""
    texts = {page: page.read_text() for page in pages.PAGES}
    by_hand = [
        (page, head.split(" | ")[0])
        for page in (pages.VERDICTS, *pages.STUDY_PAGES)
        for above, head in re.findall(r"(.*)\n\n(\|.*)\n\|---", texts[page])
        if not re.fullmatch(r"<!-- table \w+ -->", above)
    ]
    assert by_hand == [(pages.VERDICTS, "| verdict"), (pages.VERDICTS, "| page of evidence")]
    assert {found[1] for text in texts.values() for found in pages.BLOCK.finditer(text)} == pages.TABLES.keys()
    for page, passages in pages.stated().items():
        text = " ".join(texts[page].split())
        assert [passage for passage in passages if passage not in text] == [], page.name


def test_the_commands_of_the_reproduction_print_its_stored_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that name a folder of docs/results, as written; what they draw goes elsewhere."""
    lines = [line for page in pages.PAGES for block in blocks("sh", page.read_text()) for line in block.splitlines()]
    commands = [line.split("  #")[0].split()[1:] for line in lines if re.search("compare docs/results|figure .* docs/results|--show", line)]
    assert len(commands) >= 5
    for index, command in enumerate(commands):
        words = [name for word in command for name in (sorted(map(str, ROOT.glob(word))) if word.startswith("docs/") else [word])]
        asked = [str(tmp_path / f"{index}.png") if word == "FILE" else word for word in words]
        status, printed, errors = call(capsys, *asked)
        assert (status, errors) == (0, ""), command
        assert printed
