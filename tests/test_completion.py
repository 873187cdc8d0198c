"""Shell completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from swamp.analyses import analyses
from swamp.engines import engine_modules, own_loop
from swamp.methods import methods, presets
from swamp.report.figures.gallery import FIGURES
from swamp.runs.recipes import recipe_texts
from tests.support.cli import call


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    listed = " ".join(f"'{word}'" for word in words)
    code = f'. "{script}"; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _swamp; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_bash_completes_commands_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    status, out, _ = call(capsys, "--install-completion", "--shell", "bash")
    script = tmp_path / ".local/share/bash-completion/completions/swamp"
    assert status == 0
    assert str(script) in "".join(out.split())  # A narrow terminal breaks the line.
    assert completed(script, "swamp", "rep") == ["report", "reproduce"]
    assert completed(script, "swamp", "run", "--dr") == ["--dry-run"]
    assert completed(script, "swamp", "export", "runs/mine", "--fo") == ["--format"]
    assert str(script) in (tmp_path / ".bashrc").read_text()


def test_bash_completes_the_names_of_what_swamp_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    call(capsys, "--install-completion", "--shell", "bash")
    script = tmp_path / ".local/share/bash-completion/completions/swamp"
    assert completed(script, "swamp", "run", "dig") == ["digits"]
    assert completed(script, "swamp", "run", "digits", "--method", "rigl") == ["rigl", "rigl-swamp"]
    assert completed(script, "swamp", "resume", "runs/mine", "--engine", "gra") == ["graphed"]
    assert completed(script, "swamp", "figure", "h") == ["hessian", "hull"]


def complete(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What the command says to a shell that asks for the last of these words."""
    _, out, _ = call(capsys, "__complete", *words)
    return [line.split("\t")[0] for line in out.splitlines() if line and not line.startswith("\x1f")]  # which separates parts


def test_names_are_those_that_python_finds(capsys: pytest.CaptureFixture[str]) -> None:
    """They are read from the files, so that a press of the Tab key does not import torch."""
    known = sorted({*methods(), *presets()})
    assert complete(capsys, "run", "--method", "") == complete(capsys, "methods", "") == known
    assert complete(capsys, "run", "--method", "imp,") == [f"imp,{name}" for name in known]
    assert complete(capsys, "plan", "--engine", "") == ["auto", *sorted(engine_modules().keys() - {own_loop.name})]
    assert complete(capsys, "run", "") == complete(capsys, "recipes", "") == list(recipe_texts())
    assert complete(capsys, "run", "--cycle.epochs", "") == []
    assert complete(capsys, "reproduce", "") == list(recipe_texts("targets"))
    assert complete(capsys, "ablate", "") == list(recipe_texts("ablations"))
    assert complete(capsys, "figure", "") == sorted({*FIGURES, *analyses()})
    code = "import sys\nfrom swamp.cli import main\nmain(sys.argv[1:])\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, "__complete", "run", "--method", ""], check=True, capture_output=True)


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = call(capsys, "--install-completion", "--shell", "tcsh")
    assert status == 2
    assert '"tcsh"' in error
    assert error.count("\n") == 1
