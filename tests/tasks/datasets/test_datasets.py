"""What holds for every data set, found by discovery."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest

from swamp.runs.config import build_config
from swamp.tasks import datasets
from swamp.tasks.datasets import image_sets, text_sets
from swamp.tasks.datasets.cifar import CIFAR10, CIFAR100
from swamp.tasks.datasets.fashion_mnist import FASHION_MNIST

READERS = {name: reader for name, reader in {**image_sets(), **text_sets()}.items() if reader.__module__.startswith("swamp.")}


def test_modules_with_data_sets_are_found() -> None:
    assert set(image_sets()) >= {"cifar10", "cifar100", "digits", "fashion-mnist", "imagenet", "tiny-imagenet"}
    assert set(text_sets()) >= {"mrpc", "rte"}
    assert not set(image_sets()) & set(text_sets())


def test_a_data_set_of_another_distribution_is_found() -> None:
    assert "few-digits" in image_sets()  # `tests/support/plugin` registers it.
    assert "few-digits" not in READERS


def test_a_built_in_data_set_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "registered", lambda group: {"other": SimpleNamespace(IMAGE_SETS={"digits": print, "own": print})})
    found = datasets._found("IMAGE_SETS")
    assert list(found) == sorted(found)
    assert found["own"] is print
    assert found["digits"] is image_sets()["digits"]


def test_every_data_set_has_a_recipe() -> None:
    recipes = [Path(str(path)).stem for path in files("swamp.recipes").iterdir() if path.name.endswith(".toml")]
    configs = [build_config(recipe) for recipe in recipes]
    used = {getattr(config.selected("task"), "dataset", None) for config in configs}
    assert set(READERS) <= used


@pytest.mark.parametrize("name", sorted(set(READERS) - {"digits", "folder"}))  # one comes with a package, the other is the user's own
def test_missing_data_is_said_in_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWAMP_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"is read from a folder that you name with --data DIR or SWAMP_DATA; DIR should contain .* with .*; get"
    ):
        READERS[name]("")
    with pytest.raises(ValueError, match=r"was not found: there is no .* in .*; DIR should contain .* with .*; get it from http"):
        READERS[name](str(tmp_path))
    with pytest.raises(
        ValueError,
        match=r"was not found: .*/none is no folder .a run from another machine looks where SWAMP_DATA says.; DIR should contain",
    ):
        READERS[name](str(tmp_path / "none"))


def test_published_checksums_are_well_formed() -> None:
    found = [md5s for official in (CIFAR10, CIFAR100, FASHION_MNIST) for md5s in official.md5s.values()]
    assert len(found) == 12
    assert all(len(md5) == 32 and int(md5, 16) for md5s in found for md5 in md5s)
