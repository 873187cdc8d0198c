from __future__ import annotations

import pickle

import pytest
import torch

from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import ImageSet
from swamp.tasks.image import Config, ImageTask, crop

CPU = torch.device("cpu")


@pytest.fixture
def task() -> ImageTask:
    return ImageTask(Config(batch_size=100, flip=True))


def test_the_demo_network_is_as_large_as_promised(task: ImageTask) -> None:
    assert sum(torch.Size(shape).numel() for shape in task.prunable.values()) == 102_288
    assert all(len(shape) == 4 for shape in task.prunable.values())


def test_an_epoch_sees_every_example_once_and_keeps_the_last_batch(task: ImageTask) -> None:
    plan = task.plan(Noise(0), 0, CPU)
    sizes = [len(task.batch(plan, step)[1]) for step in range(task.steps_per_epoch)]
    assert sizes == [100] * 4 + [97]
    assert plan.tables["order"].sort().values.tolist() == list(range(497))


def test_plans_depend_on_noise_and_epoch_alone(task: ImageTask) -> None:
    def batch(noise: Noise, epoch: int) -> torch.Tensor:
        return task.batch(task.plan(noise, epoch, CPU), 3)[0]

    assert torch.equal(batch(Noise(1), 4), batch(Noise(1), 4))
    assert not torch.equal(batch(Noise(1), 4), batch(Noise(1), 5))
    assert not torch.equal(batch(Noise(1), 4), batch(Noise(2), 4))


def test_crop_by_hand() -> None:
    x = torch.arange(32.0).reshape(2, 1, 4, 4)
    out = crop(x, torch.tensor([0, 2]), torch.tensor([1, 0]), torch.Size([2, 2]))
    assert out.tolist() == [[[[1.0, 2.0], [5.0, 6.0]]], [[[24.0, 25.0], [28.0, 29.0]]]]


def test_augmentation_normalises_then_pads_then_crops_then_flips(task: ImageTask) -> None:
    plan = task.plan(Noise(0), 0, CPU)
    x, y = task.batch(plan, 0)
    images, labels = task.data.splits["train"]
    for row in range(20):
        index, top, left = (int(plan.tables[name][row]) for name in ("order", "top", "left"))
        padded = torch.zeros(10, 10)
        padded[1:9, 1:9] = (images[index, 0].float() - task.data.mean[0]) / task.data.std[0]
        expected = padded[top : top + 8, left : left + 8]
        expected = expected.flip(1) if plan.tables["flip"][row] else expected
        assert torch.equal(x[row, 0], expected)
        assert y[row] == labels[index]


def test_unaugmented_examples_are_only_normalised(task: ImageTask) -> None:
    rows = torch.tensor([5, 2, 9])
    x, y = task.unaugmented(rows, torch.device("cpu"))
    assert isinstance(task.data, ImageSet)
    images, labels = task.data.splits["train"]
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (task.data.mean, task.data.std))
    assert torch.equal(x, (images[rows].float() - mean) / std)
    assert torch.equal(y, labels[rows])
    # those of the test set are what it is tested on
    x, y = task.unaugmented(torch.arange(task.size("test")), torch.device("cpu"), "test")
    logits, expected = task.predict(model := task.model(), "test")
    assert torch.equal(y, expected)
    with torch.no_grad():
        torch.testing.assert_close(model(x), logits)


def test_splits_are_disjoint_and_the_same_for_all_seeds(task: ImageTask) -> None:
    assert [len(task.data.splits[split][1]) for split in ("train", "test")] == [497, 1300]
    assert task.fingerprint == ImageTask(Config(batch_size=100, flip=True)).fingerprint


def test_the_fingerprint_sees_settings(task: ImageTask) -> None:
    others = [Config(batch_size=99, flip=True), Config(batch_size=100), Config(batch_size=100, flip=True, label_smoothing=0.1)]
    assert len({task.fingerprint, *(ImageTask(config).fingerprint for config in others)}) == 4


def test_init_is_a_function_of_noise(task: ImageTask) -> None:
    state = torch.get_rng_state()
    assert task.init(Noise(0)).digest() == task.init(Noise(0)).digest() != task.init(Noise(1)).digest()
    assert torch.equal(state, torch.get_rng_state())


def test_what_is_pruned_can_be_chosen() -> None:
    def names(**settings: tuple[str, ...]) -> list[str]:
        return list(ImageTask(Config(**settings)).prunable)  # type: ignore[arg-type]

    assert "classifier.weight" in names(prunable=("conv", "linear"))
    assert "stem.weight" not in names(exclude=("stem.*",))
    assert names(prunable=("blocks.0.*.weight",), exclude=("*bn*",)) == ["blocks.0.conv1.weight", "blocks.0.conv2.weight"]
    with pytest.raises(ValueError, match=r"'stm\.weight' matches no parameter; did you mean 'stem.weight'"):
        names(prunable=("stm.weight",))
    with pytest.raises(ValueError, match="no prunable weights"):
        names(exclude=("conv",))


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match="unknown data set 'digit'; did you mean 'digits'"):
        ImageTask(Config(dataset="digit"))
    with pytest.raises(ValueError, match="unknown model 'resnet-digit'; did you mean 'resnet-digits'"):
        ImageTask(Config(model="resnet-digit"))


def test_a_model_that_pools_images_to_nothing_is_named_with_their_size() -> None:
    with pytest.raises(ValueError, match=r"the model 'vgg13' cannot take images of 8×8 pixels: .*Output size is too small"):
        _ = ImageTask(Config(model="vgg13")).macs


def test_a_task_travels_without_its_data(task: ImageTask) -> None:
    task.evaluate(task.model(), "test")
    sent = pickle.dumps(task)
    assert len(sent) < 2000
    assert pickle.loads(sent).fingerprint == task.fingerprint


def test_label_smoothing_and_evaluation(task: ImageTask) -> None:
    model = task.model()
    batch = task.batch(task.plan(Noise(0), 0, CPU), 0)
    smooth = ImageTask(Config(batch_size=100, label_smoothing=0.5))
    logp = model(batch[0]).log_softmax(1)
    plain = -logp.gather(1, batch[1][:, None]).mean()
    torch.testing.assert_close(smooth.loss(model, batch), 0.5 * plain - 0.5 * logp.mean())
    metrics = task.evaluate(model, "test")
    assert set(metrics) == {"accuracy", "nll", "calibrated_nll", "ece"}
    assert not model.training
