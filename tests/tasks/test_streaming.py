from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from swamp.core.noise import Noise
from swamp.tasks import streaming
from swamp.tasks.datasets.imagenet import read_imagenet_files
from swamp.tasks.datasets.jpeg import centre_view, read_image, to_tensor, training_view
from swamp.tasks.image import Config, ImageTask
from swamp.tasks.streaming import StreamedSource
from tests.support.made_up_datasets import gradient_jpeg, write

CPU = torch.device("cpu")
SYNSETS = ("n01440764", "n01443537", "n01484850")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for split, count in (("imagenet/train", 4), ("imagenet/val", 2)):
        for label, synset in enumerate(SYNSETS):
            for index in range(count):
                write(root / split / synset / f"{index}.JPEG", gradient_jpeg(40 + 5 * index, 50 - label, seed=10 * label + index))
    for label, synset in enumerate(SYNSETS[1:]):
        write(root / "imagenet-r" / synset / "0.jpg", gradient_jpeg(40, 40, seed=label))
    return root


def source(data: Path, workers: int, batch_size: int = 5) -> StreamedSource:
    return StreamedSource(read_imagenet_files(str(data)), batch_size, flip=True, crop_size=16, num_workers=workers)


def settings(data: Path, **changes: object) -> Config:
    given: dict[str, object] = {"dataset": "imagenet", "data": str(data), "model": "wrn8-1", "pad": 0, "flip": True, "crop_size": 16}
    return Config(**{**given, "batch_size": 5, "workers": 1, **changes})  # type: ignore[arg-type]


def by_hand(stream: StreamedSource, noise: Noise, step: int) -> tuple[Tensor, Tensor]:
    """A batch from the plan alone, with no loader."""
    files = stream.files.splits["train"]
    plan = stream.plan(noise, 0, CPU)
    assert isinstance(plan, streaming.StreamedPlan)
    rows = slice(5 * step, 5 * step + 5)
    order, seeds = plan.stream.order[rows], plan.stream.seed[rows]
    pairs = zip(order.tolist(), seeds.tolist(), strict=True)
    views = [to_tensor(training_view(read_image(files.root / files.names[i]), 16, True, seed)) for i, seed in pairs]
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (stream.files.mean, stream.files.std))
    return (torch.stack(views).float() - mean) / std, files.labels[order]


def test_without_room_in_shared_memory_fewer_workers_decode_the_same(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usable = streaming.num_usable.__wrapped__
    assert usable(3, 1) == 3
    assert usable(1000, 2**50) == 0
    assert caplog.messages == ["/dev/shm has no room for 1000 processes that decode images: 1 do"]

    def refuse(self: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")  # as where there is no /dev/shm

    monkeypatch.setattr(type(multiprocessing.get_context("forkserver")), "Lock", refuse)
    assert usable(3, 1) == 0
    monkeypatch.setattr(streaming, "num_usable", usable)
    alone = source(data, workers=3)
    x, y = alone.batch(alone.plan(Noise(0), 0, CPU), 1)
    expected, labels = by_hand(alone, Noise(0), 1)
    assert torch.equal(x, expected)
    assert torch.equal(y, labels)


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_depend_on_the_plan_and_not_on_the_workers(workers: int, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "CHUNK", 2)  # so that a batch is made of several workers' parts
    stream = source(data, workers)
    plan = stream.plan(Noise(3), 0, CPU)
    for step, size in ((0, 5), (1, 5), (2, 2)):
        x, y = stream.batch(plan, step)
        expected = by_hand(stream, Noise(3), step)
        assert len(y) == size
        assert torch.equal(x, expected[0])
        assert torch.equal(y, expected[1])


def test_workers_end_with_their_epoch_though_its_plan_is_held(data: Path) -> None:
    stream, before = source(data, 1), set(multiprocessing.active_children())
    plan = stream.plan(Noise(3), 0, CPU)
    for step in range(2):
        stream.batch(plan, step)
    assert len(set(multiprocessing.active_children()) - before) == 1
    x, _ = stream.batch(plan, 2)
    assert set(multiprocessing.active_children()) <= before
    assert torch.equal(stream.batch(plan, 2)[0], x)  # as when the last step is asked for again


def test_epochs_may_have_sizes_of_their_own(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "num_usable", lambda *_: 0)
    task = ImageTask(settings(data, sizes={"0": 8, "2": 12}))
    plans = [task.plan(Noise(3), epoch, CPU) for epoch in range(3)]
    assert [task.batch(plan, 0)[0].shape for plan in plans] == [(5, 3, side, side) for side in (8, 8, 12)]
    share = task.cut(plans[2], 1, 2)
    assert share is not None
    assert task.batch(share, 0)[0].shape == (3, 3, 12, 12)
    assert task.batch(task.last_plan(Noise(3), 0, CPU), 0)[0].shape == (5, 3, 16, 16)
    whole = ImageTask(settings(data))
    assert torch.equal(whole.batch(whole.plan(Noise(3), 0, CPU), 1)[0], by_hand(source(data, 1), Noise(3), 1)[0])
    assert task.fingerprint != whole.fingerprint


def test_shares_of_batches_are_the_batches_and_are_decoded_once(data: Path) -> None:
    stream = source(data, 1)
    plan = stream.plan(Noise(3), 0, CPU)
    shares = [stream.cut(plan, index, 2) for index in range(2)]
    for step, sizes in enumerate(([2, 3], [2, 3], [1, 1])):
        parts = [stream.batch(share, step) for share in shares if share]
        assert [len(y) for _, y in parts] == sizes
        for part, whole in zip(zip(*parts, strict=True), stream.batch(plan, step), strict=True):
            assert torch.equal(torch.cat(part), whole)
    assert stream.cut(plan, 0, 3) is None  # the last two images are too few for three


def test_a_training_goes_on_in_the_middle_of_an_epoch(data: Path) -> None:
    stream = source(data, 2)
    plan, again = (stream.plan(Noise(0), 7, CPU) for _ in range(2))
    whole = [stream.batch(plan, step) for step in range(3)]
    for step in (1, 1, 2, 0):  # from the middle, twice the same, in turn, and back
        x, y = stream.batch(again, step)
        assert torch.equal(x, whole[step][0])
        assert torch.equal(y, whole[step][1])


def test_every_image_is_seen_once_an_epoch_and_never_alike(data: Path) -> None:
    stream = source(data, 1)
    plans = [stream.plan(*key, CPU) for key in ((Noise(0), 0), (Noise(0), 1), (Noise(1), 0))]
    orders = [plan.tables["order"] for plan in plans]
    assert all(order.sort().values.tolist() == list(range(12)) for order in orders)
    assert len({tuple(order.tolist()) for order in orders}) == 3


def test_the_loader_leaves_the_random_state_alone(data: Path) -> None:
    stream = source(data, 1)
    plan = stream.plan(Noise(0), 0, CPU)
    before = torch.get_rng_state()
    stream.batch(plan, 0)
    list(stream.batches("test", CPU))
    assert torch.equal(before, torch.get_rng_state())


def test_tests_see_the_middle_in_order(data: Path) -> None:
    stream = source(data, 2)
    x, y = (torch.cat(parts) for parts in zip(*stream.batches("test", CPU), strict=True))
    files = stream.files.splits["test"]
    expected = torch.stack([to_tensor(centre_view(read_image(files.root / name), 16)) for name in files.names])
    assert torch.equal(x, stream.normalised(expected))
    assert y.tolist() == [0, 0, 1, 1, 2, 2]


def test_unaugmented_training_images_are_seen_as_tests_see_theirs(data: Path) -> None:
    stream = source(data, 1)
    x, y = stream.unaugmented(torch.arange(stream.size("test")), CPU, "test")
    (expected,) = stream.batches("test", CPU)
    assert torch.equal(x, expected[0])
    assert torch.equal(y, expected[1])
    x, y = stream.unaugmented(torch.tensor([7, 0, 4]), CPU, "train")
    files = stream.files.splits["train"]
    for index, image, label in zip((7, 0, 4), x, y, strict=True):
        seen = to_tensor(centre_view(read_image(str(files.root / files.names[index])), 16))
        assert torch.equal(image, stream.normalised(seen[None])[0])
        assert label == files.labels[index]


def test_an_unreadable_image_is_named(data: Path, tmp_path: Path) -> None:
    for split in ("train", "val"):
        write(tmp_path / "imagenet" / split / SYNSETS[0] / "bad.JPEG", b"no image")
    stream = source(tmp_path, 1)
    with pytest.raises(ValueError, match=r"bad\.JPEG is no readable image") as caught:
        stream.batch(stream.plan(Noise(0), 0, CPU), 0)
    assert "Traceback" not in str(caught.value)


def test_the_task_streams_trains_and_evaluates(data: Path) -> None:
    task = ImageTask(settings(data, test_sets=("imagenet-r",)))
    assert not task.resident
    model = task.model()
    batch = task.batch(task.plan(Noise(0), 0, CPU), 2)
    task.loss(model, batch).backward()
    metrics = task.evaluate(model, "test")
    assert {"accuracy", "imagenet-r.accuracy"} <= set(metrics)
    assert sum(task.macs.values()) > 0
    # ImageNet-R: only the outputs of its two classes compete
    with torch.no_grad():
        logits = torch.cat([model(x) for x, _ in task.source.batches("imagenet-r", CPU)])
    right = (logits[:, 1:].argmax(1) == torch.tensor([0, 1])).double().mean()
    assert metrics["imagenet-r.accuracy"] == float(right) == task.evaluate(model, "imagenet-r")["accuracy"]


SCRIPT = """
import torch
from swamp.core.noise import Noise
from swamp.tasks.image import Config, ImageTask
print("once")
task = ImageTask(Config(dataset="imagenet", data={data!r}, model="wrn8-1", pad=0, crop_size=16, batch_size=5, workers=1))
plan = task.plan(Noise(0), 0, torch.device("cpu"))
print(len(task.batch(plan, 0)[1]))
"""


def test_a_script_without_guard_is_not_run_by_workers(data: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(data=str(data)))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("once\n5\n", "")


DIES = """
import multiprocessing, os, signal
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_no_worker_outlives_a_killed_parent(data: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(data=str(data)) + DIES)
    done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, timeout=120)
    workers = [Path("/proc") / pid for pid in done.stdout.splitlines()[2].split()]
    assert workers
    deadline = time.monotonic() + 20
    while any(worker.exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_where_the_data_lie_and_who_decodes_decide_nothing(data: Path, tmp_path: Path) -> None:
    (tmp_path / "imagenet").symlink_to(data / "imagenet")
    task = ImageTask(settings(data))
    assert ImageTask(settings(tmp_path, workers=2)).fingerprint == task.fingerprint
    assert ImageTask(settings(data, crop_size=17)).fingerprint != task.fingerprint


def test_settings_that_do_not_fit_a_streamed_set(data: Path) -> None:
    with pytest.raises(ValueError, match="pad = 4: images of 'imagenet' are cropped at random sizes, which takes pad = 0"):
        _ = ImageTask(settings(data, pad=4)).source
    with pytest.raises(ValueError, match="unknown split 'imagenet-v3' of this data set; did you mean 'imagenet-v2'"):
        _ = ImageTask(settings(data, test_sets=("imagenet-v3",))).data
    with pytest.raises(ValueError, match=r"unknown split 'imagenet-r' of this data set; .*test"):
        _ = ImageTask(Config(test_sets=("imagenet-r",))).data


def test_validation_images_are_never_trained_on(data: Path) -> None:
    task = ImageTask(settings(data, validation=5))
    splits = task.data.splits
    names = {split: set(splits[split].names) for split in ("train", "validation")}  # type: ignore[union-attr]
    assert (len(names["train"]), len(names["validation"])) == (7, 5)
    assert not names["train"] & names["validation"]
    assert task.num_examples == 7
    assert "accuracy" in task.evaluate(task.model(), "validation")
