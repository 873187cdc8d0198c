"""Which weights of a task the pattern `coupled` prunes together."""

from __future__ import annotations

from swamp.core.coupling import Coupling
from swamp.core.errors import reason_of
from swamp.export.channel_graph import find_channels
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
        raise ValueError("the pattern coupled needs an input of the model, and those of a loop of your own are known to the loop alone")
    try:
        channels = find_channels(task.model(), *two_examples(task), zero=task.prunable)
    except Exception as error:  # torch.export refuses models in many ways
        raise ValueError(f"the pattern coupled needs the model's graph, which torch.export cannot read: {reason_of(error)}") from None
    found = channels.coupling(task.prunable)
    if not found.widths:
        why = next(iter(channels.reasons.values()), "no layer reads what another writes")
        raise ValueError(f"the pattern coupled finds no channel that could be left out of this model ({why})")
    return found
