"""Calls a user's own code (model, loss, metric, data set), and says whose code it was that raised an error."""

from __future__ import annotations

import inspect
import random
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from swamp.core.errors import reason_of
from swamp.core.noise import Noise

# Where tracebacks have one of these functions, what follows is the user's code.
OWNERS = {
    "call_factory": "your function",
    "call_model": "your model",
    "call_loss": "your loss",
    "call_metric": "your metric",
    "call_sampler": "your sampler",
    "read_example": "your data set",
    "read_in_order": "your data set",
    "make_batch": "your collate_fn",
    "make_optimizer": "your optimizer's function",
    "step_optimizer": "your optimizer",
    "make_scheduler": "your schedule",
    "step_scheduler": "your schedule",
}
OWNER_LINE = re.compile(rf'^  File "[^"\n]*user_code\.py", line \d+, in ({"|".join(OWNERS)})\n(?:    .*\n)*', re.MULTILINE)


class UserCodeError(ValueError):
    """An error that a user's own code raised. `user_traceback` has the lines of that code; the error itself is the `__cause__`."""

    user_traceback = ""


def user_code_error(error: BaseException, when: str = "") -> UserCodeError | None:
    """Return what to raise from an error of the user's own code, or None if the error is not one.

    The traceback decides, also that of a worker process, which comes as a note. A lack of memory is nobody's mistake.
    """
    if isinstance(error, (UserCodeError, MemoryError)) or "memory" in reason_of(error):
        return None
    text = "".join(traceback.format_exception(error, chain=False))
    if not (found := list(OWNER_LINE.finditer(text))):
        return None
    made = UserCodeError(f"{OWNERS[found[-1].group(1)]} raised {type(error).__name__}: {reason_of(error)}{when}")
    made.user_traceback = text[found[-1].end() :].rstrip("\n")
    return made


@contextmanager
def saying_whose(when: str = "") -> Iterator[None]:
    """Raise errors of the user's own code as `UserCodeError`, and others as they are."""
    try:
        yield
    except Exception as error:
        if (own := user_code_error(error, when)) is None:
            raise
        raise own from error


# -- the calls --------------------------------------------------------------------------------------------------------------------


def call_factory(function: Callable[[], Any]) -> Any:
    return function()


def call_model(model: nn.Module, inputs: Any) -> Any:
    """Return model(x), model(*xs) or model(**xs), whichever the inputs ask for."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    several = isinstance(inputs, (tuple, list)) and not isinstance(inputs, PackedSequence)  # which is a tuple of four tensors
    return model(*inputs) if several else model(inputs)


def call_loss(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def call_metric(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def call_sampler(sampler: Iterable[Any], noise: Noise) -> list[int]:
    with seeded(noise):
        return [int(index) for index in sampler]


def read_example(data: Any, index: int) -> Any:
    return data[index]


def read_in_order(data: Iterable[Any]) -> Iterator[Any]:
    """Yield all examples of a data set that can only be read in order."""
    yield from data


def make_batch(collate: Callable[[list[Any]], Any], examples: list[Any]) -> Any:
    return collate(examples)


def make_optimizer(function: Callable[[Any], Any], given: Any) -> Any:
    return function(given)


def step_optimizer(optimizer: Any) -> None:
    optimizer.step()


def make_scheduler(function: Callable[[Any, int], Any], optimizer: Any, num_steps: int) -> Any:
    return function(optimizer, num_steps)


def step_scheduler(scheduler: Any) -> None:
    scheduler.step()


@contextmanager
def seeded(noise: Noise) -> Iterator[None]:
    """Seed the random generators of Python, NumPy and torch on the CPU with the noise, and restore them afterwards."""
    with restoring_generators():
        # A GPU's generator belongs to the model's own draws and is not seeded.
        torch.default_generator.manual_seed(noise.integer())
        random.seed(noise.integer())
        np.random.seed(noise.integer() % 2**32)
        yield


@contextmanager
def restoring_generators(gpu: bool = False) -> Iterator[None]:
    """Restore the random generators of Python, NumPy and torch on the CPU afterwards, and with `gpu` that of the GPU in use."""
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if gpu and torch.cuda.is_initialized() else []):
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


@contextmanager
def seeded_everywhere(noise: Noise) -> Iterator[None]:
    """Seed the generators of `seeded` and that of the GPU in use, from which models draw, and restore them afterwards."""
    with restoring_generators(gpu=True), seeded(noise):
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed(noise.integer())
        yield


# -- what functions take ----------------------------------------------------------------------------------------------------------


def first_parameter(function: Callable[..., Any]) -> str:
    """Return the name of a function's first parameter; empty where it is not known."""
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):  # The parameters of a function written in C may be unknown.
        return ""


def takes_model(function: Callable[..., Any]) -> bool:
    """Return whether a function takes a model and a batch, not outputs and targets: its first parameter is called model."""
    return first_parameter(function.forward if isinstance(function, nn.Module) else function) == "model"


def takes_labels(model: nn.Module) -> bool:
    """Return whether a model's forward pass takes `labels` by name, as those of `transformers` do."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # as in first_parameter
        return False
    return any(parameter.name == "labels" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def is_of_torch(loss: Any) -> bool:
    """Return whether a loss is a function or a module of torch, which takes tensors and nothing else."""
    return str(getattr(type(loss) if isinstance(loss, nn.Module) else loss, "__module__", "")).startswith("torch.")
