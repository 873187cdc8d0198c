"""Which weights of a task the pattern `coupled` prunes together."""

from __future__ import annotations

from swamp.core.coupling import Coupling
from swamp.core.errors import reason_of
from swamp.export.channels.graph import EVERY_NETWORK, find_coupling
from swamp.export.formats import two_examples
from swamp.tasks.own_loop import OwnLoopTask
from swamp.tasks.task import Task

_found: dict[str, Coupling] = {}  # by fingerprint, since reading a graph takes seconds


def coupling_of(task: Task) -> Coupling:
    """Return the coupling of a task's channels, which is read from its model's graph once."""
    if task.fingerprint not in _found:
        _found[task.fingerprint] = _read_coupling(task)
    return _found[task.fingerprint]


def _read_coupling(task: Task) -> Coupling:
    if isinstance(task, OwnLoopTask):
        raise ValueError("the pattern coupled needs an input of the model, and only your own training loop knows its inputs")
    try:
        model = task.model().eval()
        found, reasons = find_coupling(model, task.prunable, *two_examples(model, task))
    except Exception as error:  # torch.export refuses models in many ways
        raise ValueError(f"the pattern coupled needs the model's graph, which torch.export cannot read: {reason_of(error)}") from None
    if not found.widths:
        special = [reason for reason in dict.fromkeys(reasons.values()) if reason not in EVERY_NETWORK]
        why = (special or list(reasons.values()))[0]
        raise ValueError(f"the pattern coupled finds no channels that could be left out of this model: {why}")
    return found
