from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.job import Job, Numerics, Optimizer, OptimizerName
from swamp.core.noise import Noise
from swamp.core.schedules import SWA, Schedule, learning_rates
from swamp.core.state import State
from swamp.training.learner import Learner
from swamp.training.train import Diverged, Training
from swamp.training.update import Update
from tests.support.blobs import Blobs, Net
from tests.support.jobs import CPU, make_job, trained


def reference_sgd(task: Blobs, job: Job, start: State) -> dict[str, Tensor]:
    """Masked SGD with momentum written out, sharing no code with the library but the plan and the schedule."""
    model = task.model()
    start.into(model)
    weights = dict(model.named_parameters())
    masks = {name: job.mask.layers[name].float() if name in job.mask.layers else torch.ones_like(w) for name, w in weights.items()}
    velocity = {name: torch.zeros_like(w) for name, w in weights.items()}
    rates = learning_rates(job.schedule, task.steps_per_epoch)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.mul_(masks[name])
    model.train()
    for step, rate in enumerate(rates):
        epoch, index = divmod(step, task.steps_per_epoch)
        x, y = task.batch(task.plan(job.noise.fold("data"), epoch, CPU), index)
        gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(weights.values()), allow_unused=True)
        with torch.no_grad():
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
                if gradient is None:
                    continue
                gradient = (gradient + job.optimizer.weight_decay * weight) * masks[name]
                velocity[name] = job.optimizer.momentum * velocity[name] + gradient
                weight -= rate * velocity[name]
    return {name: weight.detach() for name, weight in weights.items()}


def test_training_is_masked_sgd_with_momentum_and_decay() -> None:
    task = Blobs()
    job, start = make_job(task), task.init(Noise(0))
    expected = reference_sgd(task, job, start)
    found = trained(task, job, start)
    for name, weight in expected.items():
        torch.testing.assert_close(found.parameters[name], weight.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "optimizer", [Optimizer(), Optimizer(nesterov=True), Optimizer(name="adam"), Optimizer(name="adamw", weight_decay=0.1)]
)
def test_weights_and_optimizer_state_are_zero_off_the_mask_after_every_step(optimizer: Optimizer) -> None:
    task = Blobs()
    job = make_job(task, optimizer=optimizer)
    training = Training(task, job, task.init(Noise(0)), CPU)
    plan = task.plan(Noise(0), 0, CPU)
    for step in range(6):
        training.step(task.batch(plan, step % 3), 0.1)
        for name, layer in job.mask.layers.items():
            parameter = training.parameters[name]
            assert not parameter[~layer].any()
            assert parameter[layer].all()
            for tensors in training.learner.slots.values():
                assert name not in tensors or not tensors[name][~layer].any()


def test_nothing_mutates_the_start() -> None:
    task = Blobs()
    start = task.init(Noise(0))
    before = start.digest()
    trained(task, make_job(task, swa=SWA()), start)
    assert start.digest() == before


def test_noise_alone_decides() -> None:
    task = Blobs(dropout=0.5)
    job = make_job(task)
    torch.manual_seed(1)
    first = trained(task, job).digest()
    torch.manual_seed(2)
    torch.rand(17)
    assert trained(task, job).digest() == first
    assert trained(task, make_job(task, noise=Noise(0).fold("cycle", 3, "particle", 1))).digest() != first


def test_dropout_is_part_of_the_noise_and_the_global_generator_is_left_alone() -> None:
    task = Blobs(dropout=0.5)
    job, start = make_job(task), task.init(Noise(0))
    before = torch.get_rng_state()
    with_dropout = trained(task, job, start).digest()
    assert torch.equal(before, torch.get_rng_state())
    assert with_dropout != trained(Blobs(dropout=0.0), job, start).digest()


@pytest.mark.parametrize("optimizer", [Optimizer(), Optimizer(name="adam", clip_norm=0.1), Optimizer(name="adamw", accumulate=2)])
@pytest.mark.parametrize("stop", [1, 2, 3])
@pytest.mark.parametrize("swa", [SWA(start=0.5), None])
def test_a_restored_checkpoint_goes_on_bit_for_bit(optimizer: Optimizer, stop: int, swa: SWA | None) -> None:
    task = Blobs(dropout=0.3, batch_size=5)
    job = make_job(task, optimizer=optimizer, swa=swa)
    start = task.init(Noise(0))
    first = Training(task, job, start, CPU)
    for _ in range(stop):
        first.run_epoch()
    saved = first.checkpoint()
    first.run_epoch()  # what is saved must not follow what goes on
    second = Training(task, job, start, CPU)
    second.restore(saved)
    assert second.epoch == stop
    while not second.done:
        second.run_epoch()
    assert second.finish().digest() == trained(task, job, start).digest()
    assert len(second.history) == 4


def test_a_loss_that_is_no_number_stops_with_its_place() -> None:
    task = Blobs()
    task.x[3] = float("inf")
    with pytest.raises(Diverged, match=r"nan at cycle 3, particle 2, epoch 0, step [012] \(noise 0/cycle/3/particle/2\)"):
        trained(task, make_job(task))


def test_accumulating_gives_the_gradient_of_the_whole_batch() -> None:
    """Without BatchNorm's coupling, parts of unequal size must add up to the mean over the batch."""
    task = Blobs(batch_size=10)
    whole, parts = (Training(task, make_job(task, optimizer=Optimizer(accumulate=k)), task.init(Noise(0)), CPU) for k in (1, 3))
    batch = task.batch(task.plan(Noise(0), 0, CPU), 0)
    for training in (whole, parts):
        training.model.eval()
    losses = [training.step(batch, 0.1).item() for training in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1])
    for name, parameter in whole.parameters.items():
        torch.testing.assert_close(parameter, parts.parameters[name])


def test_clipping_bounds_the_masked_gradient() -> None:
    task = Blobs()
    job = make_job(task, optimizer=Optimizer(clip_norm=0.01, momentum=0.0, weight_decay=0.0))
    training = Training(task, job, task.init(Noise(0)), CPU)
    before = {name: p.detach().clone() for name, p in training.parameters.items()}
    training.step(task.batch(task.plan(Noise(0), 0, CPU), 0), 1.0)
    moved = torch.cat([(p - before[name]).flatten() for name, p in training.parameters.items()]).norm().item()
    assert moved == pytest.approx(0.01, rel=1e-3)


def test_no_decay_patterns() -> None:
    task = Blobs()
    optimizer = Optimizer(momentum=0.0, weight_decay=0.5, no_decay=("*.bias", "bn.*"))
    training = Training(task, make_job(task, optimizer=optimizer), task.init(Noise(0)), CPU)
    decays = dict(zip(training.parameters, training.learner.update.decays, strict=True))
    assert {name for name, decays in decays.items() if not decays} == {"first.bias", "last.bias", "bn.weight", "bn.bias"}
    before = training.parameters["last.weight"].clone()
    gradients = [torch.zeros_like(weight) for weight in training.parameters.values()]
    nothing = [None] * len(gradients)
    training.learner.update(list(training.parameters.values()), gradients, nothing, training.learner.memory, 0.1, nothing)
    torch.testing.assert_close(training.parameters["last.weight"], before * (1 - 0.1 * 0.5))


OPTIMIZERS = [
    Optimizer(weight_decay=0.01),
    Optimizer(nesterov=True, weight_decay=0.01),
    Optimizer(momentum=0.0),
    Optimizer(name="adam", weight_decay=0.01, betas=(0.7, 0.98), eps=0.05),
    Optimizer(name="adamw", weight_decay=0.1),
]


def test_every_optimizer_is_compared_with_that_of_torch() -> None:
    assert {optimizer.name for optimizer in OPTIMIZERS} == set(get_args(OptimizerName))


@pytest.mark.parametrize("rate_on_device", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_updates_are_those_of_torch(optimizer: Optimizer, rate_on_device: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=generator) for shape in ((3, 4), (5,))]
    theirs = [weight.clone().requires_grad_() for weight in weights]
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer.name]
    own: dict[str, Any] = {"momentum": optimizer.momentum, "nesterov": optimizer.nesterov} if optimizer.name == "sgd" else {}
    own |= {"betas": optimizer.betas, "eps": optimizer.eps} if optimizer.name != "sgd" else {}
    reference = kind(theirs, lr=0.1, weight_decay=optimizer.weight_decay, **own)
    update = Update(optimizer, ["a", "b"])
    memory = update.memory(weights)
    for _ in range(5):
        gradients = [torch.randn(weight.shape, generator=generator) for weight in weights]
        for weight, gradient in zip(theirs, gradients, strict=True):
            weight.grad = gradient.clone()
        reference.step()
        update(weights, gradients, [None, None], memory, torch.tensor(0.1) if rate_on_device else 0.1, [None, None])
    for weight, expected in zip(weights, theirs, strict=True):
        torch.testing.assert_close(weight, expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("swa", [None, SWA(start=0.0)])
def test_weights_that_are_no_numbers_are_never_stored(swa: SWA | None) -> None:
    """The loss of the last step is computed before the step; what the step makes is checked too."""
    task = Blobs()
    training = Training(task, make_job(task, schedule=Schedule(epochs=1), swa=swa), task.init(Noise(0)), CPU)
    training.run_epoch()
    for weights in (training.parameters, training.mean.tensors):
        if weights:
            weights["first.weight"].fill_(float("inf"))
    with pytest.raises(Diverged, match=r"first.weight is no longer finite at cycle 3, particle 2, epoch 0, step 2"):
        training.finish()


class Teaching(Net):
    """A network that writes to weights while it is trained: a frozen `teacher` is an exponential average of the first layer."""

    def __init__(self, written: str = "teacher") -> None:
        super().__init__(0.0)
        self.teacher = nn.Linear(4, 8).requires_grad_(False)
        self.written = written

    @torch.no_grad()
    def write(self) -> None:
        self.get_submodule(self.written).weight.lerp_(torch.ones(8, 4), 0.1)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.write()
        return super().forward(x)


class Taught(Blobs):
    written = "teacher"

    def model(self) -> nn.Module:
        return Teaching(self.written)


@pytest.mark.parametrize("optimizer", [Optimizer(), Optimizer(name="adamw")])
def test_frozen_weights_that_the_model_itself_changes_are_masked(optimizer: Optimizer) -> None:
    task = Taught()
    job = make_job(task, optimizer=optimizer)
    start = task.init(Noise(0))
    found, layer = trained(task, job).parameters["teacher.weight"], job.mask.layers["teacher.weight"]
    assert not found[~layer].any()
    assert (found[layer] != start.parameters["teacher.weight"][layer]).all()


def test_what_a_model_writes_to_frozen_weights_is_not_lost_where_others_have_copies_in_bf16() -> None:
    task = Taught()
    learner = Learner(task, Optimizer(), Numerics(precision="bf16"), CPU, tuned=True)
    start = task.init(Noise(0))
    learner.begin(start, make_job(task).mask)
    learner.model.train()
    learner.step(task.batch(task.plan(Noise(0), 0, CPU), 0), 0.1)
    mask, found = learner.factors["teacher.weight"], learner.weights["teacher.weight"]
    torch.testing.assert_close(found, mask * start.parameters["teacher.weight"].lerp(torch.ones(8, 4), 0.1))
    assert learner.copies.keys() == {"first.weight", "first.bias", "last.weight", "last.bias"}


@pytest.mark.parametrize("swa", [None, SWA(start=0.0)])
def test_a_model_that_writes_to_pruned_weights_that_are_trained_is_refused(swa: SWA | None) -> None:
    task = Taught()
    task.written = "first"
    expected = (
        r"^weights of 'first.weight' that are pruned are no longer zero after cycle 3, particle 2: .* \(exclude=\['first.weight'\]\)$"
    )
    with pytest.raises(ValueError, match=expected):
        trained(task, make_job(task, swa=swa))
