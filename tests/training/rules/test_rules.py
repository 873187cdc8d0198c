"""What rules do to tensors, against definitions written out here."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import DST, SAM, Gradual, RigL, Rule
from swamp.core.schedules import Schedule, learning_rates
from swamp.core.state import State
from swamp.training.rules.dst import thresholded
from swamp.training.rules.rigl import exchanged
from swamp.training.train import Diverged, Training
from tests.support.blobs import Blobs
from tests.support.jobs import CPU, half_mask, make_job, trained

RIGL = RigL(interval=2, fraction=0.5, until=0.75)
RULES: list[Rule] = [SAM(rho=0.1), RIGL, Gradual(num_keep=10, interval=2, begin=0.1, end=0.7), DST(alpha=0.05)]


def ones(task: Blobs) -> Mask:
    return Mask.ones(task.prunable)


# -- all of them ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_restored_checkpoint_goes_on_bit_for_bit(rule: Rule, stop: int) -> None:
    task = Blobs(dropout=0.3)
    job = make_job(task, rule=rule, schedule=Schedule(epochs=6, learning_rate=0.1))
    start = task.init(Noise(0))
    first = Training(task, job, start, CPU)
    for _ in range(stop):
        first.run_epoch()
    saved = first.checkpoint()
    first.run_epoch()
    second = Training(task, job, start, CPU)
    second.restore(saved)
    while not second.done:
        second.run_epoch()
    assert second.finish().digest() == trained(task, job, start).digest()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_changes_what_is_trained_and_its_key(rule: Rule) -> None:
    task = Blobs()
    job, schedule = make_job(task), Schedule(epochs=6, learning_rate=0.1)
    plain, ruled = make_job(task, schedule=schedule), make_job(task, schedule=schedule, rule=rule)
    assert plain.key != ruled.key
    assert trained(task, plain).digest() != trained(task, ruled).digest()
    assert job.key == make_job(task, rule=None).key


# -- SAM --------------------------------------------------------------------------------------------------------------------------


def test_sam_against_two_passes_by_hand() -> None:
    task = Blobs()
    rho = 0.3
    job = make_job(task, rule=SAM(rho=rho))
    start = task.init(Noise(0))
    model = task.model()
    start.into(model)
    weights = dict(model.named_parameters())
    masks = {name: job.mask.layers[name].float() if name in job.mask.layers else torch.ones_like(w) for name, w in weights.items()}
    velocity = {name: torch.zeros_like(w) for name, w in weights.items()}
    with torch.no_grad():
        for name, weight in weights.items():
            weight.mul_(masks[name])
    model.train()

    def slope(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        found = torch.autograd.grad(F.cross_entropy(model(x), y), list(weights.values()), allow_unused=True)
        return {name: g * masks[name] for name, g in zip(weights, found, strict=True) if g is not None}

    for step, rate in enumerate(learning_rates(job.schedule, task.steps_per_epoch)):
        epoch, index = divmod(step, task.steps_per_epoch)
        x, y = task.batch(task.plan(job.noise.fold("data"), epoch, CPU), index)
        first = slope(x, y)
        statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
        norm = math.sqrt(sum(float(g.double().pow(2).sum()) for g in first.values()))
        kept = {name: weight.detach().clone() for name, weight in weights.items()}
        with torch.no_grad():
            for name, g in first.items():
                weights[name].add_(rho * g / norm)
        second = slope(x, y)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(statistics[name])  # those of the first pass
            for name, g in second.items():
                total = g + job.optimizer.weight_decay * kept[name]
                velocity[name] = 0.9 * velocity[name] + total
                weights[name].copy_(kept[name] - rate * velocity[name])
    found = trained(task, job, start)
    for name, weight in weights.items():
        torch.testing.assert_close(found.parameters[name], weight.detach(), rtol=1e-4, atol=1e-5)
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(found.buffers[name], buffer, rtol=1e-4, atol=1e-5)


def test_sam_with_rho_zero_is_sgd_bit_for_bit() -> None:
    task = Blobs()
    assert trained(task, make_job(task, rule=SAM(rho=0.0))).digest() == trained(task, make_job(task)).digest()


# -- RigL -------------------------------------------------------------------------------------------------------------------------


def test_rigl_exchanges_the_smallest_for_where_the_gradient_is_largest() -> None:
    weight = torch.tensor([0.5, -0.1, 0.2, 0.9, 0.0, 0.0, 0.0, 0.0])
    alive = torch.tensor([True, True, True, True, False, False, False, False])
    gradient = torch.tensor([9.0, 0.3, 0.1, 9.0, 0.2, -0.8, 0.0, 0.25])
    # drop 2 of 4: |−0.1| and |0.2|. Outside of what is kept the largest gradients are |−0.8| (new) and 0.3 (just dropped).
    found = exchanged(weight, gradient, alive, 0.5)
    assert found.tolist() == [True, True, False, True, False, True, False, False]
    # int(0.24 · 4) = 0: nothing moves
    assert torch.equal(exchanged(weight, gradient, alive, 0.24), alive)


def rigl_steps(task: Blobs, rule: RigL) -> list[dict[str, Any]]:
    """What a training holds after each of its steps."""
    job = make_job(task, rule=rule, schedule=Schedule(epochs=6, learning_rate=0.1))
    training = Training(task, job, task.init(Noise(0)), CPU)
    training.model.train()
    found = []
    for epoch in range(6):
        training.epoch = epoch
        plan = training.plan(epoch)
        for step, rate in enumerate(training.epoch_rates):
            acted = training.acts(step)
            dense: dict[str, Tensor] = {}
            if acted:
                _, gradients = training.learner.gradient(task.batch(plan, step), training.learner.functions)
                dense = {name: g.clone() for name, g in zip(training.parameters, gradients, strict=True) if g is not None}
                assert training.act(plan, step) is not None
            else:
                training.step(task.batch(plan, step), rate)
            found.append(
                {
                    "acted": acted,
                    "gradient": dense,
                    "mask": training.mask,
                    "weights": {name: w.clone() for name, w in training.parameters.items()},
                    "momentum": {name: v.clone() for name, v in training.learner.slots["momentum"].items()},
                }
            )
    return found


def test_rigl_step_by_step() -> None:
    task = Blobs()
    steps = rigl_steps(task, RIGL)
    start = half_mask(task)
    counts = {name: int(layer.sum()) for name, layer in start.layers.items()}
    moved = 0
    for number, (before, after) in enumerate(pairwise(steps), start=1):
        assert after["acted"] == (number % 2 == 0 and number < 0.75 * len(steps))
        for name, alive in after["mask"].layers.items():
            was, weight, momentum = before["mask"].layers[name], after["weights"][name], after["momentum"][name]
            assert int(alive.sum()) == counts[name], "the density is constant at every step"
            assert not weight[~alive].any()
            assert not momentum[~alive].any()
            if not after["acted"]:
                assert torch.equal(alive, was)
                continue
            stayed, new = alive & was, alive & ~was
            moved += int(new.sum())
            # what went is among the smallest: nothing that stayed for good is smaller, but for what was dropped and came back
            gone, size = was & ~alive, before["weights"][name].abs()
            num_moved = int(0.5 * 0.5 * (1 + math.cos(math.pi * number / (0.75 * len(steps)))) * counts[name])
            dropped = size[was].sort().values[:num_moved]
            assert int(gone.sum()) <= num_moved
            if gone.any():
                assert size[gone].max() <= dropped.max()
            # no optimizer step: what stays, dropped and regrown included, has its value and momentum, what is new starts at 0
            assert torch.equal(weight[stayed], before["weights"][name][stayed])
            assert torch.equal(momentum[stayed], before["momentum"][name][stayed])
            assert not weight[new].any()
            assert not momentum[new].any()
            # growth from the right set: nothing left out has a larger gradient than what is new
            if new.any():
                size = after["gradient"][name].abs()
                assert size[new].min() >= size[~alive].max()
    assert moved > 0


def test_rigl_ends_with_its_own_mask_and_the_same_count() -> None:
    task = Blobs()
    job = make_job(task, rule=RIGL, schedule=Schedule(epochs=6, learning_rate=0.1))
    training = Training(task, job, task.init(Noise(0)), CPU)
    while not training.done:
        record = training.run_epoch()
    mask = training.mask
    assert mask is not None
    assert mask.digest != job.mask.digest
    assert mask.num_survivors == job.mask.num_survivors
    assert record["sparsity"] == pytest.approx(1 - mask.density)
    state = training.finish()
    for name, layer in mask.layers.items():
        assert not state.parameters[name][~layer].any()


# -- gradual ----------------------------------------------------------------------------------------------------------------------


def test_gradual_pruning_removes_the_smallest_for_good() -> None:
    task = Blobs()
    rule = Gradual(num_keep=10, interval=3, begin=0.1, end=0.7)
    job = make_job(task, rule=rule, mask=ones(task), schedule=Schedule(epochs=10, learning_rate=0.1))
    training = Training(task, job, task.init(Noise(0)), CPU)
    masks = [ones(task)]
    while not training.done:
        training.run_epoch()
        assert training.mask is not None
        masks.append(training.mask)
    assert all(before.contains(after) for before, after in pairwise(masks))
    assert masks[-1].num_survivors == 10
    assert len({mask.num_survivors for mask in masks}) > 3


@pytest.mark.parametrize("rule", [RigL(interval=1, fraction=0.5, until=1.0), Gradual(num_keep=10, interval=1, begin=0.0, end=1.0)])
def test_a_training_that_diverges_says_where(rule: Rule) -> None:
    """Rules rank weights before the end of the epoch finds a loss that is no number."""
    with pytest.raises(Diverged, match=r"the loss became nan at cycle 3, particle 2, epoch 0, step [12] "):
        trained(Blobs(), make_job(Blobs(), rule=rule, schedule=Schedule(epochs=6, learning_rate=1e30)))


def test_gradual_pruning_ranks_over_all_layers() -> None:
    task = Blobs()
    rule = Gradual(num_keep=5, interval=1, begin=0.0, end=0.0)  # all at once, before the first step
    job = make_job(task, rule=rule, mask=ones(task), schedule=Schedule(epochs=1, learning_rate=1e-9))
    start = task.init(Noise(0))
    training = Training(task, job, start, CPU)
    training.run_epoch()
    assert training.mask is not None
    sizes = torch.cat([start.parameters[name].abs().reshape(-1) for name in task.prunable])
    alive = torch.cat([layer.reshape(-1) for layer in training.mask.layers.values()])
    assert sizes[alive].min() >= sizes[~alive].max()


# -- DST --------------------------------------------------------------------------------------------------------------------------


def test_the_thresholds_derivative_is_the_long_tailed_one() -> None:
    weight = torch.tensor([[0.05, -0.3, 0.45, -0.9, 1.7]], requires_grad=True)
    threshold = torch.tensor([[0.1]], requires_grad=True)
    seen = thresholded(weight, threshold)
    torch.testing.assert_close(seen, torch.tensor([[0.0, -0.3, 0.45, -0.9, 1.7]]))
    outer = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    by_weight, by_threshold = torch.autograd.grad((seen * outer).sum(), (weight, threshold))
    # x = |w| − t = −0.05, 0.2, 0.35, 0.8, 1.6;  S'(x) = 1.8, 1.2, 0.6, 0.4, 0;  S(x) = 0, 1, 1, 1, 1
    slope, step = torch.tensor([[1.8, 1.2, 0.6, 0.4, 0.0]]), torch.tensor([[0.0, 1.0, 1.0, 1.0, 1.0]])
    torch.testing.assert_close(by_weight, outer * (step + weight.detach().abs() * slope))
    torch.testing.assert_close(by_threshold, (outer * -weight.detach() * slope).sum(1, keepdim=True))


def dst_training(task: Blobs, alpha: float, epochs: int = 20, start: State | None = None) -> Training:
    job = make_job(task, rule=DST(alpha=alpha), mask=ones(task), schedule=Schedule(epochs=epochs, learning_rate=0.1))
    return Training(task, job, start or task.init(Noise(0)), CPU)


def test_masked_weights_go_on_and_can_come_back() -> None:
    task = Blobs()
    training = dst_training(task, alpha=0.02, epochs=30)
    masks, hidden = [], []
    while not training.done:
        training.run_epoch()
        mask = training.mask
        assert mask is not None
        masks.append(mask)
        hidden.append({name: training.parameters[name][~layer].abs().sum().item() for name, layer in mask.layers.items()})
    assert any(sum(sums.values()) > 0 for sums in hidden), "weights under their threshold are not zero"
    revived = [bool((after.layers[n] & ~before.layers[n]).any()) for before, after in pairwise(masks) for n in before.layers]
    assert any(revived)
    state, mask = training.finish(), training.mask
    assert mask is not None
    for name, layer in mask.layers.items():
        assert not state.parameters[name][~layer].any(), "the final mask is applied"


def test_the_larger_alpha_the_sparser() -> None:
    densities = []
    for alpha in (0.0, 1e-3, 1e-2, 3e-2):
        training = dst_training(Blobs(num_examples=40), alpha)
        while not training.done:
            training.run_epoch()
        assert training.mask is not None
        densities.append(training.mask.density)
    assert densities == sorted(densities, reverse=True)
    assert densities[0] > densities[-1]


def test_a_nearly_empty_layer_starts_over() -> None:
    task = Blobs()
    training = dst_training(task, alpha=0.01)
    network: Any = training.learner.network
    with torch.no_grad():
        network.thresholds[0].fill_(100.0)
        network.thresholds[1].fill_(0.01)
    training.model.train()
    training.step(task.batch(training.plan(0), 0), 0.0)  # a rate of 0: only the reset moves anything
    assert not network.thresholds[0].any()
    assert (network.thresholds[1] == 0.01).all()


def test_thresholds_get_decay_and_momentum_as_weights_do() -> None:
    """One step by hand: with loss L(w ∘ S) + α Σ e^(−t), t = 0 moves by −η ∂/∂t."""
    task = Blobs()
    training = dst_training(task, alpha=0.5)
    network: Any = training.learner.network
    with torch.no_grad():
        for threshold in network.thresholds:
            threshold.fill_(0.05)
    batch = task.batch(training.plan(0), 0)
    training.model.train()
    clone = task.model()
    task.init(Noise(0)).into(clone)
    t = torch.full((2, 1), 0.05, requires_grad=True)
    weights = dict(clone.named_parameters())
    seen = {
        "first.weight": thresholded(weights["first.weight"].detach(), torch.full((8, 1), 0.05)),
        "last.weight": thresholded(weights["last.weight"].detach(), t),
    }
    loss = F.cross_entropy(torch.func.functional_call(clone.train(), seen, (batch[0],)), batch[1]) + 0.5 * torch.exp(-t).sum()
    (slope,) = torch.autograd.grad(loss, t)
    training.step(batch, 0.1)
    expected = 0.05 - 0.1 * (slope + 0.01 * 0.05)
    torch.testing.assert_close(network.thresholds[1].detach(), expected, rtol=1e-5, atol=1e-7)
    assert training.learner.slots["momentum"]["rule/thresholds.1"].any()


# -- a training in two parts ------------------------------------------------------------------------------------------------------


def test_two_parts_of_a_training_are_the_whole() -> None:
    """Weights, buffers and the optimizer's memory are handed on; schedule, batches and draws go on where they were."""
    task = Blobs(dropout=0.3)
    whole = make_job(task)
    first = make_job(task, span=(0, 3))
    second = make_job(task, span=(3, 4), start="middle")
    assert len({whole.key, first.key, second.key}) == 3
    middle = trained(task, first)
    assert any(tensor.any() for tensor in middle.memory.values())
    assert trained(task, second, middle).digest() == trained(task, whole).digest()
    without = State(middle.parameters, middle.buffers)
    assert trained(task, second, without).digest() != trained(task, whole).digest()


class ByParts(Blobs):
    """The same loss, by calls of the model's parts."""

    def loss(self, model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        m: Any = model
        return F.cross_entropy(m.last(m.dropout(F.relu(m.bn(m.first(batch[0]))))), batch[1])


def test_thresholds_act_in_losses_that_call_parts_of_the_model() -> None:
    found = [dst_training(task, alpha=0.02, epochs=10) for task in (Blobs(), ByParts())]
    for training in found:
        while not training.done:
            training.run_epoch()
    assert found[0].mask is not None
    assert found[0].mask.density < 1
    assert found[0].finish().digest() == found[1].finish().digest()
