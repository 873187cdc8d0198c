from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from swamp.tasks.datasets.dataset import FileSet
from swamp.tasks.datasets.imagenet import imagenet_to_prepare, read_imagenet, read_test_set
from swamp.tasks.datasets.shards import ShardSet
from swamp.tasks.datasets.tiny_imagenet import read_tiny_imagenet
from tests.support.made_up_datasets import jpeg, write
from tests.support.prepared import write_folder

SYNSETS = ("n01440764", "n01443537", "n01484850")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three classes; each set with its own number of images a class."""
    for split, count in (("imagenet/train", 3), ("imagenet/val", 2), ("sketch", 1)):
        for synset in SYNSETS:
            for index in range(count):
                write(tmp_path / split / synset / f"{synset}_{index}.JPEG", jpeg(20, 20))
    for synset in SYNSETS[1:]:
        write(tmp_path / "imagenet-r" / synset / "art_0.jpg", jpeg(20, 20))
    write(tmp_path / "imagenet-r" / "README.txt", b"")
    write(tmp_path / "imagenet" / "train" / "stray.txt", b"")
    return tmp_path


def test_folders_become_labels_in_the_order_of_their_names(data: Path) -> None:
    for place in (data, data / "imagenet"):
        found = read_imagenet(str(place))
        assert isinstance(found, FileSet)
        assert found.num_classes == 3
        train = found.splits["train"]
        assert train.names[:4] == [f"{SYNSETS[0]}/{SYNSETS[0]}_{i}.JPEG" for i in range(3)] + [f"{SYNSETS[1]}/{SYNSETS[1]}_0.JPEG"]
        assert train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert found.splits["test"].labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert train.classes is None


def test_further_test_sets(data: Path) -> None:
    found = read_imagenet(str(data))
    sketch, rendition = found.split("imagenet-sketch"), found.split("imagenet-r")
    assert sketch.labels.tolist() == [0, 1, 2]
    assert sketch.classes is None
    # two of the three classes: labels count those two, which are outputs 1 and 2 of the network
    assert rendition.labels.tolist() == [0, 1]
    assert rendition.classes is not None
    assert rendition.classes.tolist() == [1, 2]


def test_v2_numbers_its_classes(tmp_path: Path) -> None:
    synsets = [f"n{number:08d}" for number in range(1000)]
    for number in range(1000):
        write(tmp_path / "imagenetv2-matched-frequency-format-val" / str(number) / "a.jpeg", b"")
    found = read_test_set("imagenet-v2", str(tmp_path), synsets)
    assert found.labels.tolist() == list(range(1000))
    assert found.names[10] == "10/a.jpeg"  # folder 10 is class 10, though its name sorts third
    assert found.classes is None
    with pytest.raises(ValueError, match="numbers 1,000 classes, but the training set has 3"):
        read_test_set("imagenet-v2", str(tmp_path), SYNSETS)


def test_wrong_folders_are_explained(data: Path) -> None:
    found = read_imagenet(str(data))
    with pytest.raises(ValueError, match=r"ImageNet-V2 .* was not found: there is no imagenetv2-matched-frequency-format-val/999"):
        found.split("imagenet-v2")

    write(data / "imagenet-r" / "n99999999" / "a.jpg", b"")
    with pytest.raises(ValueError, match="has classes that the training set lacks \\(n99999999"):
        found.split("imagenet-r")

    val = data / "imagenet" / "val"
    shutil.rmtree(val / SYNSETS[1])
    with pytest.raises(ValueError, match=f"val/{SYNSETS[1]} holds no images; DIR should contain imagenet/ with train/ and val/, each with"):
        read_imagenet(str(data))

    train = data / "imagenet" / "train"
    shutil.rmtree(train)
    write(train / "a.JPEG", b"")
    with pytest.raises(ValueError, match="train holds no folder named by a synset; DIR should contain"):
        read_imagenet(str(data))


def test_what_is_to_be_prepared_has_the_test_sets_that_are_there(data: Path) -> None:
    found = imagenet_to_prepare(str(data))
    assert found.split_names == ("train", "test", "imagenet-r", "imagenet-sketch")
    assert found.class_names == SYNSETS
    assert found.published["imagenet-sketch"] == (1000, 50_889)
    write(data / "imagenet" / "train" / SYNSETS[0] / f"{SYNSETS[2]}_7.JPEG", b"")
    with pytest.raises(
        ValueError, match=f"{SYNSETS[2]}_7.JPEG is named as an image of {SYNSETS[2]} and lies in the folder of {SYNSETS[0]}"
    ):
        imagenet_to_prepare(str(data))


def test_a_prepared_folder_takes_the_place_of_files(tmp_path: Path) -> None:
    image = np.zeros((8, 9, 3), np.uint8)
    write_folder(tmp_path, {"train": [(image, 2)], "test": [(image, 0)]}, SYNSETS, settings={"name": "imagenet"})
    found = read_imagenet(str(tmp_path))
    assert isinstance(found, ShardSet)
    assert found.splits["train"].labels.tolist() == [2]
    with pytest.raises(ValueError, match="holds prepared images of 'imagenet' and not of 'tiny-imagenet'"):
        read_tiny_imagenet(str(tmp_path))
