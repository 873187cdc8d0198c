"""Shell completion."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = call(capsys, "--install-completion", "--shell", "tcsh")
    assert status == 2
    assert '"tcsh"' in error
    assert error.count("\n") == 1
