"""A metric that another distribution adds by one file: it is measured, shown, ranked and drawn like swamp's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from swamp.core.metric import Metric
from swamp.engines import sequential
from swamp.store.records import read_rows
from swamp.tasks.custom import CustomTask
from swamp.tasks.image import Config, ImageTask
from swamp.tasks.metrics import ClassificationMetric, added_metrics, find_metric, measurement_key
from tests.support.cli import FLAGS, call

SHORT = [*FLAGS, "--pruning.cycles=1", "--cycle.epochs=1", "--keep=all"]
MODULE = """
from torch.nn.functional import one_hot

from swamp.core.metric import Metric
from swamp.tasks.metrics import ClassificationMetric


def brier(logits, labels):
    return ((logits.softmax(1) - one_hot(labels, logits.shape[1])) ** 2).sum(1).mean()


METRIC = ClassificationMetric(Metric("brier", "Brier score", digits=3, maximise=False), brier)
"""


@pytest.fixture
def forget_added_metrics() -> Iterator[None]:
    added_metrics.cache_clear()
    yield
    added_metrics.cache_clear()


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what pip would do: a module, and the entry point that names its metric."""
    (folder / "brier_score.py").write_text(MODULE)
    information = folder / "brier_score-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: brier-score\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[swamp.metrics]\nbrier = brier_score:METRIC\n")
    monkeypatch.syspath_prepend(folder)
    added_metrics.cache_clear()


@pytest.mark.usefixtures("forget_added_metrics")
def test_a_metric_added_by_one_file_is_measured_without_training_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {method: ["run", "digits", "--method", method, *SHORT, "--out", tmp_path / method] for method in ("imp", "random", "swamp")}
    for arguments in runs.values():
        assert call(capsys, *arguments)[0] == 0
    before = {method: read_rows(tmp_path / method) for method in runs}

    install(tmp_path, monkeypatch)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be trained")

    monkeypatch.setattr(sequential, "train_job", refuse)
    for method, arguments in runs.items():
        status, out, err = call(capsys, *arguments)
        assert status == 0, err
        assert "lacks brier; its networks are evaluated again, none is trained" in out + err
        rows = read_rows(tmp_path / method)
        for old, new in zip(before[method], rows, strict=True):
            assert new.solution == old.solution
            assert {name: value for name, value in new.metrics.items() if name != "brier"} == old.metrics
            assert [set(member) - {"brier"} for member in new.members] == [set(member) for member in old.members]
            assert 0 < new.metrics["brier"] < 2
            assert new.described["brier"] == Metric("brier", "Brier score", digits=3, maximise=False)
        assert "nothing to do" in "".join(call(capsys, *arguments)[1:])

    assert "Brier score" in call(capsys, "show", tmp_path / "imp")[1]
    directories = [tmp_path / method for method in runs]
    records = json.loads(call(capsys, "compare", *directories, "--format", "json")[1])
    last = {one["method"]: one for one in records if one["metric"] == "brier" and one["of"] == "network" and one["sparsity"] > 0}
    best = min(last, key=lambda method: last[method]["mean"])
    assert last[best]["rank"] == 1
    assert call(capsys, "report", *directories, "--out", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "Brier score (less is better)" in page
    assert '"brier":{"label":"test Brier score","digits":3}' in page


@pytest.mark.usefixtures("forget_added_metrics")
def test_a_run_that_dropped_its_weights_is_not_trained_again_for_a_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "digits", "--method", "imp", *SHORT[:-1], "--keep=last", "--out", tmp_path / "imp"]
    assert call(capsys, *arguments)[0] == 0
    install(tmp_path, monkeypatch)
    assert "nothing to do" in "".join(call(capsys, *arguments)[1:])


@pytest.mark.usefixtures("forget_added_metrics")
def test_keys_name_the_metrics_and_the_code_of_those_that_were_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch import nn

    data = torch.randn(20, 4), torch.arange(20) % 2
    image, custom = ImageTask(Config()), CustomTask(nn.Linear(4, 2), data, data)
    names = ["accuracy", "nll", "calibrated_nll", "ece"]
    assert image.measured == custom.measured == names
    fingerprint, problem = custom.fingerprint, custom.problem
    install(tmp_path, monkeypatch)
    again = CustomTask(custom.original, data, data)
    assert image.measured[:4] == again.measured[:4] == names
    assert [image.measured[4][0], again.measured[4][0]] == ["brier", "brier"]
    assert (again.fingerprint, again.problem) == (fingerprint, problem)  # which trainings and directories follow from
    edited = ClassificationMetric(find_metric("brier"), lambda logits, labels: 0.0)
    assert measurement_key([edited]) != image.measured[4:]


@pytest.mark.usefixtures("forget_added_metrics")
def test_an_entry_point_that_is_no_metric_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    (tmp_path / "brier_score-1.0.dist-info" / "entry_points.txt").write_text("[swamp.metrics]\nwrong = brier_score:brier\n")
    with pytest.raises(ValueError, match=r"'wrong' of swamp\.metrics is a function, not a ClassificationMetric"):
        added_metrics()
