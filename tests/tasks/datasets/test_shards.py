from __future__ import annotations

import io
import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from swamp.tasks.datasets.decoding import Pixels, encode_jpeg
from swamp.tasks.datasets.shard_writing import ShardWriter, write_atomically, write_index, write_split
from swamp.tasks.datasets.shards import ROW, ShardIndex, ShardSet, find_prepared, open_shards, verify
from tests.support.prepared import write_folder

DRAW = np.random.default_rng(0)
IMAGES: list[tuple[Pixels, int]] = [(DRAW.integers(0, 256, (5 + index, 7, 3), dtype=np.uint8), index % 3) for index in range(10)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "prepared"
    splits = {"train": IMAGES, "test": IMAGES[:4], "imagenet-r": IMAGES[2:3]}
    write_folder(place, splits, ["a", "b", "c"], images_per_shard=3, settings={"name": "imagenet"})
    return place


def change_index(folder: Path, **changes: Any) -> None:
    path = folder / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_was_written_is_read(folder: Path) -> None:
    found = open_shards(folder)
    assert found.split_names == ("train", "test", "imagenet-r")
    assert found.num_classes == 3
    assert found.settings["store"] == "raw"
    train = found.splits["train"]
    assert train.labels.dtype == torch.int64
    assert train.sizes.tolist() == [[5 + index, 7] for index in range(10)]
    for index, (pixels, label) in enumerate(IMAGES):
        assert np.array_equal(train.pixels(index), pixels)
        assert train.labels[index] == label
    assert np.array_equal(found.split("imagenet-r").pixels(0), IMAGES[2][0])
    assert verify(folder) == []
    with pytest.raises(ValueError, match="read-only"):
        train.pixels(0)[0, 0, 0] = 1


def test_parts_of_a_split(folder: Path) -> None:
    found = open_shards(folder)
    part = found.splits["train"].take(torch.tensor([7, 2]))
    assert part.labels.tolist() == [1, 2]
    assert np.array_equal(part.pixels(0), IMAGES[7][0])
    held = found.holding_out(3, seed=0)
    assert (len(held.splits["train"]), len(held.splits["validation"])) == (7, 3)
    assert len(found.limited(2).split("test")) == 2
    assert held.digest == found.digest


def test_a_split_travels_without_its_maps_and_is_read_by_threads(folder: Path) -> None:
    train = open_shards(folder).splits["train"]
    train.pixels(0)
    _ = train.labels
    sent = pickle.dumps(train)
    assert len(sent) < 2000
    there = pickle.loads(sent)
    with ThreadPoolExecutor(8) as pool:
        for index, pixels in enumerate(pool.map(there.pixels, range(10))):
            assert np.array_equal(pixels, IMAGES[index][0])


def test_the_digest_follows_the_pixels_of_train_and_test_alone(tmp_path: Path) -> None:
    def digest(name: str, **splits: list[tuple[Pixels, int]]) -> str:
        write_folder(tmp_path / name, splits, ["a", "b", "c"])
        return open_shards(tmp_path / name).digest

    first = digest("one", train=IMAGES, test=IMAGES[:2])
    assert digest("two", train=IMAGES, test=IMAGES[:2], further=IMAGES[:1]) == first
    other = IMAGES[0][0].copy()
    other[0, 0, 0] ^= 1
    assert digest("three", train=[(other, 0), *IMAGES[1:]], test=IMAGES[:2]) != first
    assert digest("four", train=[(IMAGES[0][0], 1), *IMAGES[1:]], test=IMAGES[:2]) != first


def test_a_damaged_shard_is_named(folder: Path) -> None:
    path = folder / "train-00001.bin"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    assert open_shards(folder)  # Sizes are as they should be; bytes are only read by `verify`.
    (problem,) = verify(folder)
    assert "train-00001.bin is damaged (its SHA-256 is" in problem
    path.write_bytes(data[:-1])
    with pytest.raises(ValueError, match=rf"train-00001.bin is damaged \(it has {len(data) - 1} bytes instead of {len(data)}\); `swamp"):
        open_shards(folder)
    path.unlink()
    with pytest.raises(ValueError, match=r"train-00001.bin is missing; `swamp prepare` makes it again"):
        open_shards(folder)
    assert len(verify(folder)) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"format": 9}, "index.json has format 9, and this version of swamp reads format 1"),
        ({"settings": {"store": "png"}}, r"index.json is damaged \(store = 'png'\)"),
        ({"splits": {}}, "index.json has no split 'train'"),
        ({"classes": ["a"]}, r"train.npy is damaged \(it has labels beyond the 1 classes\)"),
        ({"mean": "grey"}, r"index.json is damaged \(Expected `array`"),
    ],
)
def test_a_damaged_index_is_said(changes: dict[str, Any], why: str, folder: Path) -> None:
    change_index(folder, **changes)
    with pytest.raises(ValueError, match=why):
        open_shards(folder)


def test_names_that_lead_out_of_the_folder_are_refused(folder: Path) -> None:
    index = json.loads((folder / "index.json").read_text())
    index["splits"]["test"]["shards"][0]["file"] = "../secret"
    change_index(folder, **index)
    with pytest.raises(ValueError, match=r"the name '../secret' leads out of the folder"):
        open_shards(folder)


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("offset", 10_000, "images lie beyond the ends of their files"),
        ("shard", 9, "negative numbers or unknown files"),
        ("label", -1, "negative numbers or unknown files"),
        ("height", 4, "sizes of images and their numbers of bytes differ"),
        ("label", 2, "its SHA-256 is"),
    ],
)
def test_a_table_that_leads_astray_is_refused(column: str, value: int, why: str, folder: Path) -> None:
    path = folder / "train.npy"
    table = np.load(path)
    table[column][4] = value
    np.save(path, table)
    with pytest.raises(ValueError, match=f"train.npy is damaged .*{why}"):
        open_shards(folder)


def test_a_split_without_images_is_refused(folder: Path) -> None:
    np.save(table := io.BytesIO(), np.empty(0, ROW))
    index = json.loads((folder / "index.json").read_text())
    stored = write_atomically(folder / "test.npy", table.getvalue())
    index["splits"]["test"] |= {"count": 0, "table": msgspec.to_builtins(stored)}
    change_index(folder, **index)
    with pytest.raises(ValueError, match=r"test.npy is damaged \(it has no images\)"):
        open_shards(folder)


def test_a_table_that_would_run_code_is_not_run(folder: Path) -> None:
    path = folder / "train.npy"
    size = path.stat().st_size
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    with pytest.raises(ValueError, match=r"train.npy is damaged \(Object arrays cannot be loaded"):
        open_shards(folder)


def test_small_jpeg_files_are_decoded(tmp_path: Path) -> None:
    ramp = np.stack(np.broadcast_arrays(np.arange(64)[:, None] * 3, np.arange(48) * 4, np.full((64, 48), 90)), 2).astype(np.uint8)
    data = encode_jpeg(ramp, 95, "pil")
    records = {}
    for split in ("train", "test"):
        with ShardWriter(tmp_path, f"{split}-00000.bin") as writer:
            writer.add("ramp.png", data, 64, 48, 0)
            writer.add("wrong.png", data, 65, 48, 0)
            writer.add("broken.png", data[:300], 64, 48, 0)
            records[split] = write_split(tmp_path, split, [writer.close()])
    write_index(tmp_path, ShardIndex(1, {"store": "jpeg"}, (0.0,) * 3, (1.0,) * 3, ("a",), records))
    train = open_shards(tmp_path).splits["train"]
    assert np.abs(train.pixels(0).astype(int) - ramp).max() <= 6
    with pytest.raises(ValueError, match=r"image 1 of train-00000.bin in .* is damaged \(it is 48×64 and not 48×65\)"):
        train.pixels(1)
    with pytest.raises(ValueError, match=r"image 2 of train-00000.bin in .* is damaged"):
        train.pixels(2)


def test_a_shard_that_is_cut_off_while_it_is_in_use_is_one_sentence(folder: Path) -> None:
    """Reading mapped pages beyond the end of a file would end the process with SIGBUS."""
    train = open_shards(folder).splits["train"]
    train.pixels(0)
    path = folder / train.files[0]
    size = path.stat().st_size
    os.truncate(path, 100)
    with pytest.raises(ValueError, match=r"train-00000.bin was cut off while it was in use \(it has 100 bytes, and image 1 lies beyond"):
        train.pixels(1)
    os.truncate(path, size)
    train.pixels(1)


def test_a_shard_that_is_not_closed_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with ShardWriter(tmp_path, "train-00000.bin") as writer:
            writer.add("a", b"123", 1, 1, 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_a_data_set_finds_its_prepared_folder(folder: Path, tmp_path: Path) -> None:
    assert isinstance(find_prepared(str(folder), "imagenet"), ShardSet)
    assert find_prepared(str(tmp_path), "imagenet") is None
    with pytest.raises(ValueError, match="holds prepared images of 'imagenet' and not of 'folder'"):
        find_prepared(str(folder), "folder")
    found = open_shards(folder)
    with pytest.raises(
        ValueError, match=r"unknown split 'imagenet-v2' of these prepared images; did you mean 'imagenet-r'.*adds test sets"
    ):
        found.check_split("imagenet-v2")
    (folder / "index.json").unlink()
    (folder / "journal").mkdir()
    (folder / "journal" / "plan.json").write_text("{}")
    with pytest.raises(ValueError, match="is not completely prepared; run `swamp prepare` again"):
        find_prepared(str(folder), "imagenet")
