"""The documentation's snippets run, and what it names is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import swamp
from swamp.cli import app
from swamp.commands.arguments import split_arguments
from swamp.report.figures.gallery import ANALYSES, FIGURES
from swamp.runs.config import build_config
from swamp.runs.grid import expand, read_grid
from swamp.trackers.tracker import Point

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_python_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert blocks("python")
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert "25572 of 102288 weights survive" in capsys.readouterr().out


def test_the_examples_of_custom_tasks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    cnn, transformer = blocks("python", (ROOT / "docs" / "custom.md").read_text())
    exec(compile(cnn, "custom.md", "exec"), {"__name__": "__main__"})
    assert (tmp_path / "cnn.pt").exists()
    shown = capsys.readouterr().out
    assert "87.5% sparse: accuracy 9" in shown
    assert "4.weight" in shown
    scope: dict[str, object] = {"__name__": "__main__"}
    exec(compile(transformer, "custom.md", "exec"), scope)
    rows = scope["found"].rows  # type: ignore[attr-defined]
    assert rows[-1].metric == "accuracy"
    assert rows[-1].metrics["accuracy"] > 0.9
    assert set(rows[-1].densities) == {
        "encoder.self_attn.in_proj_weight",
        "encoder.self_attn.out_proj.weight",
        "encoder.linear1.weight",
        "encoder.linear2.weight",
    }


def test_toml_snippets_are_recipes(tmp_path: Path) -> None:
    for block in blocks("toml"):
        (tmp_path / "mine.toml").write_text(block)
        config = build_config(str(tmp_path / "mine.toml"))
        assert config.pruning.cycles == tomllib.loads(block)["pruning"]["cycles"]


def test_the_grid_in_the_documentation_is_a_grid(tmp_path: Path) -> None:
    (block,) = blocks("toml", (ROOT / "docs" / "ablations.md").read_text())
    (tmp_path / "rates.toml").write_text(block)
    sweep = expand(read_grid(tmp_path / "rates.toml"), tmp_path)
    assert len(sweep.runs) == 3 * 5  # of six combinations one is excluded


def test_commands_exist_and_take_the_arguments_shown() -> None:
    commands = [line.split("#")[0].split() for block in blocks("bash") for line in block.splitlines() if line.startswith("swamp ")]
    assert commands
    for _, name, *arguments in commands:
        _, bound, _ = app.parse_args([name, *arguments], exit_on_error=False, print_error=False)
        if name == "run":
            split_arguments(bound.args)
    named = set(re.findall(r"`swamp (\w+)", README))
    assert named <= {name for name in app if not name.startswith("-")}


def test_following_shows_commands_and_a_tracker_that_work(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "following.md").read_text()
    inline = [text.split() for text in re.findall(r"`(swamp (?:figure|ensemble|analyse) [^`…]+)`", page)]
    assert len(inline) >= 8
    for _, *arguments in inline:
        app.parse_args(arguments, exit_on_error=False, print_error=False)
    commands = [line.split("#")[0].split() for block in blocks("bash", page) for line in block.splitlines() if line.startswith("swamp ")]
    assert {name for _, name, *_ in commands} == {"watch", "run", "compare", "figure"}
    for _, *arguments in commands:
        app.parse_args(arguments, exit_on_error=False, print_error=False)
    (block,) = blocks("python", page)
    scope: dict[str, Any] = {}
    exec(compile(block, "following.md", "exec"), scope)
    tracker = scope["track"](None)
    tracker.log(Point("cycle 0, particle 1", "epoch", 3, {"loss": 0.5}))
    tracker.close(False)
    assert capsys.readouterr().out == "epoch 3 {'loss/cycle 0, particle 1': 0.5}\nstopped\n"
    shown = set(re.findall(r"`(\w+)`", page.partition("| name | what it shows |")[2].partition("Colours")[0]))
    assert {*FIGURES, *ANALYSES} <= shown


def test_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make ([a-z-]+)", README)) <= set(targets)


def test_files_named_in_the_documentation_exist() -> None:
    assert not re.search(r"\b(RESULTS|TODO|TBD|FIXME)\b", README)
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"`((?:src|docs|tests|benchmarks)/[\w/.-]+)`", document.read_text()):
            assert (ROOT / name).exists(), f"{document.name} names {name}"


def test_the_tree_in_the_readme_is_the_tree() -> None:
    rooms = {path.name for path in (ROOT / "src" / "swamp").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == set(re.findall(r"^  (\w+)/ ", README, re.MULTILINE))


def test_the_public_names_are_documented() -> None:
    for name in swamp.__all__:
        if name != "__version__":
            assert getattr(swamp, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = swamp.nonsense  # type: ignore[attr-defined]


def test_the_page_of_methods_is_what_the_code_says() -> None:
    from swamp.report.pages import methods_page

    page = (ROOT / "docs" / "methods.md").read_text()
    assert page.endswith(methods_page()), "write docs/methods.md anew: python -m swamp.report.pages docs/methods.md"
