"""A `Learner` holds the tensors that a training changes, and does the steps that change them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from swamp.core.job import Numerics, Optimizer
from swamp.core.mask import Mask
from swamp.core.rules import Rule
from swamp.core.schedules import SWA, Schedule, learning_rates
from swamp.core.state import State
from swamp.tasks.own.optimizer import quiet_schedulers
from swamp.tasks.task import Batch, EpochPlan, Task
from swamp.training.captured_update import CapturedUpdate
from swamp.training.own_update import OwnUpdate
from swamp.training.rules import behaviour
from swamp.training.step import Loss, StepFunctions, channels_last, compiled_functions, eager_functions, gradient
from swamp.training.update import Rate, Update

ROUNDED = (nn.modules.conv._ConvNd, nn.Linear)  # the modules whose weights and biases autocast rounds to bf16


class Learner:
    """A network with its float32 weights, its mask and its optimizer's memory. `rule_parameters` are those that a rule adds to the model's.

    It belongs to no job: `begin` loads a job into the same tensors, so that compiled and captured code serves every job of its shape.

    `tuned` lays images out channels last and, in bf16, gives the model bf16 copies of the weights that autocast would round at each use.
    The numbers are the same, but the copies are rounded only once a step, together with the update. `fused` lets layers use their own
    kernels. `count` is the number of the step in its epoch, on the device, where steps are captured in a graph.
    """

    def __init__(
        self,
        task: Task,
        optimizer: Optimizer,
        numerics: Numerics,
        device: torch.device,
        rule: Rule | None = None,
        *,
        tuned: bool = False,
        fused: bool = False,
        count: Tensor | None = None,
    ) -> None:
        self.task, self.optimizer, self.numerics, self.device, self.tuned = task, optimizer, numerics, device, tuned
        self.rule = behaviour(rule)
        self.model = task.model().to(device)
        if tuned:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for module in fusable(self.model):
            module.fused = fused
        weights = {name: parameter.detach() for name, parameter in self.model.named_parameters()}
        own = getattr(task, "own_optimizer", None)  # It gets the parameters themselves.
        self.rounded = _rounded(self.model) if tuned and numerics.precision == "bf16" and own is None else {}
        self.copies = _use_working_copies(self.rounded) if self.rule.rounds_weights else {}
        self.weights: Mapping[str, Tensor] = weights
        self.network = self.rule.network(self.model, task.prunable)
        self.rule_parameters = rule_parameters(self.network, self.model)
        self.factors = {name: torch.ones_like(weights[name]) for name in task.prunable}
        self.moved = {**weights, **self.rule_parameters}  # all tensors that the optimizer updates
        self.own_update: OwnUpdate | None = None
        if own is not None:
            given = own, self.model, optimizer.clip_norm
            self.own_update = OwnUpdate(*given) if count is None else CapturedUpdate(*given, task.steps_per_epoch, count)
        self.update = Update(optimizer, list(self.moved))
        self.memory = {} if self.own_update else self.update.memory(list(self.moved.values()))
        self.functions = compiled_functions(task, self.update) if numerics.compile else eager_functions(task, self.update)

    @property
    def slots(self) -> dict[str, dict[str, Tensor]]:
        """The optimizer's memory by slot and by parameter name. The count of steps is shared by all parameters."""
        return {slot: dict(zip(self.moved if slot != "count" else ["all"], tensors, strict=True)) for slot, tensors in self.memory.items()}

    @property
    def slot_tensors(self) -> dict[str, Tensor]:
        """The optimizer's memory by "slot/name", as states and checkpoints hold it."""
        return {f"{slot}/{name}": tensor for slot, tensors in self.slots.items() for name, tensor in tensors.items()}

    @torch.no_grad()
    def begin(self, start: State, mask: Mask) -> None:
        """Load the start under the mask. The optimizer's memory is zero unless the start brings it."""
        self.load(mask.apply(start))
        for name, factor in self.factors.items():
            factor.copy_(mask.layers[name])
        for tensor in self.rule_parameters.values():
            tensor.zero_()
        for name, tensor in self.slot_tensors.items():
            remembered = start.memory.get(name)
            tensor.zero_() if remembered is None else tensor.copy_(remembered)

    @torch.no_grad()
    def load(self, state: State) -> None:
        state.write(self.weights, dict(self.model.named_buffers()))
        self.round_weights()

    @torch.no_grad()
    def round_weights(self) -> None:
        """Update the bf16 copies from the float32 weights."""
        for name, copy in self.copies.items():
            copy.copy_(self.weights[name])

    @torch.no_grad()
    def apply_mask(self) -> None:
        """Set weights and memory to zero off the mask, after the mask has changed."""
        for name, factor in self.factors.items():
            self.weights[name].mul_(factor)
            for slot, tensors in self.slots.items():
                if slot != "count":
                    tensors[name].mul_(factor)
        if self.own_update:
            self.own_update.apply_mask([self.factors.get(name) for name in self.weights])
        self.round_weights()

    def state(self, *, with_memory: bool = False) -> State:
        """Return a copy of the current weights and buffers."""
        return State.copy(self.weights, dict(self.model.named_buffers()), self.slot_tensors if with_memory else None)

    def gradient(self, batch: Batch, functions: StepFunctions) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return the loss of a batch, and its gradient by all weights, pruned ones included."""
        return self.gradient_of(functions.loss, self.model, batch)

    def gradient_of(self, loss_of: Loss, network: nn.Module, batch: Batch) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return any loss and its gradient by all parameters of the network. All gradients of a training are computed here."""
        return gradient(loss_of, network, batch, self.optimizer.accumulate, self.numerics)

    def step(self, batch: Batch, rate: Rate, functions: StepFunctions | None = None) -> Tensor:
        """Do one step of masked training and return its loss."""
        functions = functions or self.functions
        loss, gradients = self.rule.gradient(self, self.laid_out(batch), functions)
        factors = [self.factors.get(name) for name in self.moved]
        copies = [self.copies.get(name) for name in self.moved]
        update = self.own_update or functions.update  # A user's own is never compiled.
        update(list(self.moved.values()), gradients, factors, self.memory, rate, copies)
        return loss

    def rates(self, schedule: Schedule, swa: SWA | None) -> list[float]:
        """Return the learning rate of every step of a training that begins."""
        begin = self.own_update.begin if self.own_update else learning_rates
        return begin(schedule, self.task.steps_per_epoch, swa)

    def prepare(self, epoch: int) -> None:
        """Prepare an epoch of captured steps."""
        if isinstance(self.own_update, CapturedUpdate):
            self.own_update.prepare(epoch)

    def planned(self, plan: EpochPlan) -> EpochPlan:
        """Return the part of an epoch's plan that this learner trains on, which is all of it."""
        return plan

    def act(self, batch: Callable[[], Batch], step: int, num_steps: int) -> Tensor | None:
        """Let the rule act before a step or instead of it. Return the loss if it acted instead of the step."""
        loss = self.rule.act(self, lambda: self.laid_out(batch()), step, num_steps)
        if loss is not None and self.own_update:
            with quiet_schedulers():  # In a training that was resumed, it may be the first step that this optimizer sees.
                self.own_update.step_scheduler()
        return loss

    def laid_out(self, batch: Batch) -> Batch:
        return channels_last(batch) if self.tuned else batch


def rule_parameters(network: nn.Module, model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that a rule's network adds to the model's, in the network's order, under names that no model has."""
    known = {id(parameter) for parameter in model.parameters()}
    return {f"rule/{name}": parameter.detach() for name, parameter in network.named_parameters() if id(parameter) not in known}


def fusable(model: nn.Module) -> list[Any]:
    """Return the model's layers that have their own kernels. There are none if some BatchNorm has none: compiling it is then faster."""
    own = [module for module in model.modules() if hasattr(module, "fused")]
    plain = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules() if module not in own)
    return [] if plain else own


def _rounded(model: nn.Module) -> dict[str, nn.Module]:
    """Return the names of the weights that autocast rounds to bf16, with their modules. A weight that several modules share is left out,
    and so is a frozen one, which the model itself may change."""
    uses = Counter(id(p) for module in model.modules() for p in module._parameters.values() if p is not None)
    return {
        f"{path}.{name}".lstrip("."): module
        for path, module in model.named_modules()
        if isinstance(module, ROUNDED)
        for name, parameter in module.named_parameters(recurse=False)
        if uses[id(parameter)] == 1 and parameter.requires_grad
        if name in ("weight", "bias")  # weight_norm computes a weight from others in float32
    }


def _use_working_copies(rounded: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Replace these weights of the modules by bf16 copies, and return the copies by name."""
    copies = {}
    for path, module in rounded.items():
        name = path.rpartition(".")[2]
        parameter = module.get_parameter(name)
        copy = nn.Parameter(parameter.detach().to(torch.bfloat16), requires_grad=parameter.requires_grad)
        setattr(module, name, copy)
        copies[path] = copy.detach()
    return copies
