"""Batches from prepared shards, by threads on the CPU and through buffers on a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from swamp.core.noise import Noise
from swamp.tasks.batches import feeding
from swamp.tasks.batches.feeding import DeviceFeed, HostFeed, Showing
from swamp.tasks.batches.views import central_views
from swamp.tasks.datasets.jpeg import centre_view
from swamp.tasks.datasets.shards import open_shards
from swamp.tasks.prepared import PreparedPlan, PreparedSource
from tests.support.prepared import CROP, NUM_TEST, NUM_TRAIN, prepared_task, write_prepared

CPU = torch.device("cpu")
BATCH = 5
NUM_STEPS = 5  # of which the last has two images


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("prepared"))


def source(folder: Path, threads: int = 2, batch_size: int = BATCH) -> PreparedSource:
    return PreparedSource(open_shards(folder), batch_size, flip=True, crop_size=CROP, num_threads=threads)


def showing_of(plan: Any) -> Showing:
    assert isinstance(plan, PreparedPlan)
    return plan.showing


def by_hand(showing: Showing, step: int, mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """A batch from the plan alone, image by image."""
    images, rows = showing.images, range(showing.edges[step], showing.edges[step + 1])
    views = []
    for row in rows:
        top, left, height, width = showing.views.box[row].tolist()
        pixels = torch.from_numpy(np.array(images.pixels(int(showing.order[row]))))[top : top + height, left : left + width]
        scaled = F.interpolate(pixels.permute(2, 0, 1)[None].float(), (showing.size, showing.size), mode="bilinear", antialias=True)[0]
        views.append(scaled.flip(-1) if showing.views.flip[row] else scaled)
    shift, spread = (torch.tensor(values).view(1, 3, 1, 1) for values in (mean, std))
    return (torch.stack(views) - shift) / spread, images.labels[showing.order[list(rows)]]


def check_epoch(source: PreparedSource, plan: Any, device: torch.device, steps: Any = range(NUM_STEPS)) -> None:
    for step in steps:
        x, y = source.batch(plan, step)
        wanted, labels = by_hand(showing_of(plan), step, source.shards.mean, source.shards.std)
        assert x.device.type == device.type
        assert (x.cpu() - wanted).abs().max() < 1e-3
        assert torch.equal(y.cpu(), labels)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_follow_from_the_plan_and_not_from_the_threads(folder: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "CHUNK", 2)  # so that several threads make a batch
    shards = source(folder, threads)
    check_epoch(shards, shards.plan(Noise(3), 0, CPU), CPU)


def test_any_step_can_be_asked_for_at_any_time(folder: Path) -> None:
    shards = source(folder)
    plan = shards.plan(Noise(0), 7, CPU)
    check_epoch(shards, plan, CPU, (2, 2, 3, 0, 4, 4, 1))


def test_epochs_and_noises_differ_and_each_shows_every_image_once(folder: Path) -> None:
    shards = source(folder)
    shown = [showing_of(shards.plan(*key, CPU)) for key in ((Noise(0), 0), (Noise(0), 1), (Noise(1), 0), (Noise(0), 0))]
    assert all(one.order.sort().values.tolist() == list(range(NUM_TRAIN)) for one in shown)
    assert len({str(one.order) for one in shown}) == 3
    assert len({str(one.views.box) for one in shown}) == 3
    assert torch.equal(shown[0].views.flip, shown[3].views.flip)


def test_shares_of_batches_are_the_batches_and_no_rank_reads_what_another_shows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = source(folder)
    plan = shards.plan(Noise(3), 0, CPU)
    whole = [shards.batch(plan, step) for step in range(NUM_STEPS)]
    read: list[int] = []
    kind = type(shards.shards.splits["train"])
    pixels = kind.pixels
    monkeypatch.setattr(kind, "pixels", lambda self, index: [read.append(index), pixels(self, index)][1])
    shares = [shards.cut(plan, index, 2) for index in range(2)]
    halves = []
    for share in shares:
        assert share is not None
        read.clear()
        halves.append([shards.batch(share, step) for step in range(NUM_STEPS)])
        assert sorted(read) == showing_of(share).order.sort().values.tolist()
    for step, (x, y) in enumerate(whole):
        assert torch.equal(torch.cat([half[step][0] for half in halves]), x)
        assert torch.equal(torch.cat([half[step][1] for half in halves]), y)
    assert shards.cut(plan, 0, 3) is None  # The last two images are too few for three.


def test_tests_see_the_middle_in_order_as_pil_shows_it(folder: Path) -> None:
    shards = source(folder)
    x, y = (torch.cat(parts) for parts in zip(*shards.batches("test", CPU), strict=True))
    images = shards.shards.splits["test"]
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (shards.shards.mean, shards.shards.std))
    views = [np.array(centre_view(Image.fromarray(np.array(images.pixels(index))), CROP)) for index in range(NUM_TEST)]
    assert ((x * std + mean) - torch.from_numpy(np.stack(views)).permute(0, 3, 1, 2)).abs().max() <= 1.0
    assert torch.equal(y, images.labels)
    rows = torch.tensor([4, 0, 6])
    some, labels = shards.unaugmented(rows, CPU, "test")
    assert torch.equal(some, x[rows])
    assert torch.equal(labels, y[rows])


def test_reading_leaves_the_random_state_alone(folder: Path) -> None:
    shards = source(folder)
    before = torch.get_rng_state()
    shards.batch(shards.plan(Noise(0), 0, CPU), 0)
    list(shards.batches("test", CPU))
    assert torch.equal(before, torch.get_rng_state())


def test_an_error_of_a_thread_reaches_the_training(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(self: Any, index: int) -> Any:
        raise ValueError(f"image {index} is damaged")

    shards = source(folder)
    plan = shards.plan(Noise(0), 0, CPU)
    monkeypatch.setattr(type(shards.shards.splits["train"]), "pixels", damaged)
    with pytest.raises(ValueError, match=r"image [0-9]+ is damaged"):
        shards.batch(plan, 0)


# -- the task -----------------------------------------------------------------------------------------------------------------------


def test_the_fingerprint_has_the_preparation_and_not_where_it_lies(folder: Path, tmp_path: Path) -> None:
    task = prepared_task(folder)
    same, other = write_prepared(tmp_path / "same"), write_prepared(tmp_path / "other", decoder="another")
    assert prepared_task(same, workers=1).fingerprint == task.fingerprint
    changes: list[dict[str, Any]] = [{"crop_size": 17}, {"sizes": {"0": 8}}, {"flip": False}]
    different = [prepared_task(other), *(prepared_task(folder, **change) for change in changes)]
    assert len({one.fingerprint for one in (task, *different)}) == 5


def test_sizes_change_the_images_of_later_epochs_and_not_those_of_tests(folder: Path) -> None:
    task = prepared_task(folder, sizes={"0": 8, "2": 12, "3": 16})
    assert [task.batch(task.plan(Noise(0), epoch, CPU), 0)[0].shape[-1] for epoch in range(5)] == [8, 8, 12, 16, 16]
    assert task.batch(task.last_plan(Noise(0), 0, CPU), 0)[0].shape[-1] == CROP
    assert next(iter(task.source.batches("test", CPU)))[0].shape[-1] == CROP
    assert list(task.stretches(1, 9)) == [range(1, 2), range(2, 3), range(3, 9)]
    assert list(task.stretches(4, 6)) == [range(4, 6)]
    small, large = (sum(task.epoch_macs(epoch).values()) for epoch in (0, 3))
    assert 3.5 < large / small < 4.5
    assert task.epoch_macs(3) == task.macs
    plain = prepared_task(folder)
    assert torch.equal(plain.plan(Noise(0), 2, CPU).showing.views.box, task.plan(Noise(0), 2, CPU).showing.views.box)  # type: ignore[attr-defined]


def test_settings_that_do_not_fit(folder: Path) -> None:
    with pytest.raises(ValueError, match="pad = 4: images of 'imagenet' are cropped at random sizes, which takes pad = 0"):
        _ = prepared_task(folder, pad=4).source
    with pytest.raises(ValueError, match=r"tasks\.image\.sizes = \{'3': 8\}: sizes from given epochs on must begin with epoch 0"):
        prepared_task(folder, sizes={"3": 8})


# -- through the buffers of a GPU ---------------------------------------------------------------------------------------------------


class FakeEvent:
    """An event of a GPU that has done all its work."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, stream: object) -> None:
        self.recorded += 1

    def synchronize(self) -> None:
        assert self.recorded


class FakeStream:
    def __init__(self, *_: object) -> None: ...

    def wait_event(self, event: FakeEvent) -> None:
        assert event.recorded

    def wait_stream(self, stream: FakeStream) -> None: ...


@contextmanager
def no_stream(stream: object) -> Iterator[None]:
    yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A GPU, or the CPU with the bookkeeping of one."""
    if request.param == "cpu":
        for name, value in {"Event": FakeEvent, "Stream": FakeStream, "current_stream": FakeStream, "stream": no_stream}.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(feeding, "pinned_bytes", lambda count: torch.empty(count, dtype=torch.uint8))
        monkeypatch.setattr(
            PreparedSource,
            "_feed",
            lambda self, showing, device: DeviceFeed(showing, self.normalisation, self.threads, device, self._free.setdefault(device, [])),
        )
    return torch.device(request.param)


def test_buffers_give_what_the_plan_says(folder: Path, device: torch.device) -> None:
    shards = source(folder)
    check_epoch(shards, shards.plan(Noise(3), 0, device), device)
    check_epoch(shards, shards.plan(Noise(3), 1, device), device, (2, 2, 3, 0, 4, 4, 1))
    x, y = (torch.cat(parts).cpu() for parts in zip(*shards.batches("test", device), strict=True))
    images = shards.shards.splits["test"]
    showing = Showing(images, torch.arange(NUM_TEST), central_views(torch.from_numpy(images.sizes), CROP), [0, NUM_TEST], CROP)
    expected, labels = HostFeed(showing, shards.normalisation, shards.threads).batch(0)
    assert (x - expected).abs().max() < 1e-3
    assert torch.equal(y, labels)


def test_epochs_take_turns_with_the_same_buffers(folder: Path, device: torch.device) -> None:
    shards = source(folder)
    for epoch in range(3):
        check_epoch(shards, shards.plan(Noise(3), epoch, device), device)
        gc.collect()
        assert len(shards._free[device]) == 1
    first, second = (shards.plan(noise, 0, device) for noise in (Noise(1), Noise(2)))
    for step in range(NUM_STEPS):  # Two particles, step by step
        check_epoch(shards, first, device, [step])
        check_epoch(shards, second, device, [step])
    gc.collect()
    assert len(shards._free[device]) == 2


def test_an_epoch_that_is_left_in_the_middle_does_not_spoil_the_next(folder: Path, device: torch.device) -> None:
    shards = source(folder)
    for _ in range(5):
        plan = shards.plan(Noise(5), 0, device)
        shards.batch(plan, 0)
        del plan
    gc.collect()
    assert len(shards._free[device]) == 1
    check_epoch(shards, shards.plan(Noise(3), 0, device), device)


def test_batches_that_were_handed_out_stay_as_they_are(folder: Path, device: torch.device) -> None:
    """Buffers are filled again, so that a batch must not be a view of them."""
    shards = source(folder)
    plan = shards.plan(Noise(3), 0, device)
    batches = [shards.batch(plan, step) for step in range(NUM_STEPS)]
    for step, (x, y) in enumerate(batches):
        wanted, labels = by_hand(showing_of(plan), step, shards.shards.mean, shards.shards.std)
        assert (x.cpu() - wanted).abs().max() < 1e-3
        assert torch.equal(y.cpu(), labels)
