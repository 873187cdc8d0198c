from __future__ import annotations

from pathlib import Path

import pytest

from swamp.tasks.datasets.dataset import FileSet
from swamp.tasks.datasets.folder import folder_files, read_folder
from tests.support.made_up_datasets import gradient_jpeg, write


def fill(root: Path, *splits: str, classes: tuple[str, ...] = ("cat", "dog"), count: int = 3) -> Path:
    for split in splits:
        for name in classes:
            for index in range(count):
                write(root / split / name / f"{index}.jpg", gradient_jpeg(20, 20, index))
    return root


def test_classes_are_folders_in_the_order_of_their_names(tmp_path: Path) -> None:
    found = read_folder(str(fill(tmp_path, "train", "val")))
    assert isinstance(found, FileSet)
    assert found.class_names == ("cat", "dog")
    assert found.split_names == ("train", "test")
    assert found.splits["train"].names[2:4] == ["cat/2.jpg", "dog/0.jpg"]
    assert found.splits["test"].labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_with_test_and_val_the_second_is_a_further_split(tmp_path: Path) -> None:
    found = folder_files(str(fill(tmp_path, "train", "val", "test")))
    assert found.split_names == ("train", "test", "val")
    assert found.splits["test"].root.name == "test"
    assert found.split("val").root.name == "val"


@pytest.mark.parametrize("below", ["train", "."])
def test_test_images_can_be_held_out_by_a_seed(below: str, tmp_path: Path) -> None:
    fill(tmp_path, below, count=10)
    parts = [folder_files(str(tmp_path), 0.2, seed).splits for seed in (0, 0, 1)]
    assert [(len(part["train"].names), len(part["test"].names)) for part in parts] == [(16, 4)] * 3
    assert parts[0]["test"].names == parts[1]["test"].names != parts[2]["test"].names
    assert not set(parts[0]["test"].names) & set(parts[0]["train"].names)


def test_mistakes_get_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWAMP_DATA", raising=False)

    def fails(data: Path | str, why: str, held_out: float = 0) -> None:
        with pytest.raises(ValueError, match=why) as caught:
            folder_files(str(data), held_out)
        assert "\n" not in str(caught.value)

    fails("", "images are read from a folder that you name with --data DIR or SWAMP_DATA; DIR should contain train/CLASS")
    fails(tmp_path / "none", r"none is no folder; DIR should contain")
    fails(tmp_path, r"has neither test/ nor val/; .*`swamp prepare folder --hold-out 0.1` takes a tenth")
    fails(tmp_path, "holds no folders of classes", 0.1)
    fails(fill(tmp_path / "a", "test"), r"train holds no folders of classes")
    fails(fill(tmp_path / "b", "train", "test"), r"has test images in test/, so that none are to be held out", 0.1)
    fails(fill(tmp_path / "c", "train", count=1), r"validation = 1 leaves|holding out 1 leaves no training image of", 1)
    few = fill(tmp_path / "d", "train", "test")
    for path in (few / "test" / "dog").iterdir():
        path.unlink()
    fails(few, r"test/dog holds no images; DIR should contain")
    more = fill(fill(tmp_path / "e", "train", "test"), "test", classes=("cow",))
    fails(more, r"test/cow/0.jpg is in a class that the training set lacks, 'cow'; DIR should contain")
    stray = fill(tmp_path / "f", "train", "test")
    write(stray / "train" / "a.png", b"")
    fails(stray, r"train/a.png lies in no folder of a class")
