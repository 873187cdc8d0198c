"""Times calls of networks in turns, so that other work on the machine affects each alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import torch

Key = TypeVar("Key", bound=Hashable)


def fastest(calls: Mapping[Key, Callable[[], Any]], rounds: int = 5, seconds: float = 0.02) -> dict[Key, float]:
    """Return the seconds of the fastest call of each; a mean would also measure other work. A round takes about so many seconds of each."""
    repeats, least = {}, {}
    for name, call in calls.items():
        call()  # It may choose how its layers are computed.
        least[name] = seconds_of(call)
        repeats[name] = max(round(seconds / max(least[name], 1e-6)), 1)
    for _ in range(rounds):
        for name, call in calls.items():
            least[name] = min(least[name], *(seconds_of(call) for _ in range(repeats[name])))
    return least


def seconds_of(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def inference_call(network: Callable[..., Any], inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a function that calls a network with these inputs, without gradients."""

    def call() -> Any:
        with torch.inference_mode():
            return network(*inputs, **named)

    return call
