"""`prune_with`: make a network sparse by a training loop that exists already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from swamp.api import configs_of_seeds, prune_task, require_arguments, tracker_names
from swamp.core.machine import resolve_device
from swamp.methods import methods
from swamp.methods.method import Method, at_cycle
from swamp.pruned import Pruned, PrunedSeeds
from swamp.runs.config import Config
from swamp.runs.progress import Listener
from swamp.runs.recipes import nested
from swamp.runs.setting_list import require_known_names
from swamp.runs.settings import flat
from swamp.tasks.custom import Metrics
from swamp.tasks.own_loop import OwnLoopTask
from swamp.tasks.prunable import DEFAULT_KINDS
from swamp.training.averaging import batchnorm_layers

# Settings that the loop decides, and what takes their place.
DECIDED_BY_THE_LOOP = {
    "cycle.epochs": "give epochs=",
    **dict.fromkeys(("lr", "learning_rate"), "your loop sets its rates"),
    **dict.fromkeys(("batch_size", "limit_examples", "fast"), "your loop makes its batches"),
    **dict.fromkeys(("metric", "validation"), "evaluate measures what you like"),
    "evaluate_every": "your loop can evaluate after its epochs",
    "recipe": "your loop is the recipe",
    "task*": "your loop is the task",
    "engine*": "a loop of your own trains in this process",
    "optimizer*": "your loop makes its optimizer",
    "*.learning_rate": "your loop sets its rates",
    "swa.entry": "SWA averages at the loop's own rates",
    **{
        f"{table}.{name}": "your loop has its own schedule"
        for table in ("cycle", "ticket")
        for name in ("shape", "warmup", "milestones", "gamma")
    },
    **dict.fromkeys(("precision", "compile", "deterministic"), "your loop decides it"),
}


def prune_with(
    train: Callable[..., Any],
    model: Callable[[], nn.Module],
    evaluate: Callable[[nn.Module], Metrics],
    *,
    epochs: int | None = None,
    loss: Callable[[nn.Module], Tensor] | None = None,
    refresh: Callable[[nn.Module], Any] | None = None,
    maximise: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    prunable: Sequence[str] = DEFAULT_KINDS,
    exclude: Sequence[str] = (),
    out: str | Path | None = None,
    cache: str | Path | None = None,
    seeds: Sequence[int] | None = None,
    listener: Listener | None = None,
    trackers: Sequence[str] = (),
    quiet: bool = False,
    **options: Any,
) -> Pruned | PrunedSeeds:
    """Make a network sparse by a training loop of your own.

    `train(model, run)` trains the model, in place, from beginning to end; it is called once for each training. It makes its own
    optimizer and schedule, seeds its order of data with `run.seed`, and calls `run.epoch_end(epoch)` at the end of each epoch (`run` is a
    `LoopTraining`). Masks hold by themselves. It returns None, or the module that counts, such as an average of its own.
    `model()` makes a model with a newly drawn init. `evaluate(model)` returns a number or a dict of numbers, whose first one counts.
    `epochs`: how many epochs the loop trains, if it can be told (`run.epochs`); without it, the ticket's training runs to its end.
    `loss(model)`: the loss on a sample of training data of your choice, for methods that score weights first (snip, grasp, synflow).
    `refresh(model)`: passes training data through the model; needed where BatchNorm is averaged.
    `settings`: anything the loop reads as `run.settings`. They are part of what identifies the run, so name your data there.
    `options` are those of `prune`: method, sparsity, pruning, ticket, seed, device, …; rates and optimizers are the loop's.
    """
    require_arguments(out=out, cache=cache, listener=listener, trackers=trackers, quiet=quiet)
    functions: dict[str, Any] = {"train": train, "model": model, "evaluate": evaluate}
    functions |= {name: given for name, given in (("loss", loss), ("refresh", refresh)) if given is not None}
    for name, function in functions.items():
        if not callable(function):
            raise ValueError(f"{name} is a {type(function).__name__}; give a function")
    if settings is not None and not isinstance(settings, Mapping):
        raise ValueError(f"settings is a {type(settings).__name__}; give a dict, which the loop reads as run.settings")
    if isinstance(model, nn.Module):
        raise ValueError("model is a module; give a function that makes it, so that every training can begin with a new one")
    for name, _ in flat(nested(options)):
        for pattern, instead in DECIDED_BY_THE_LOOP.items():
            if fnmatchcase(name, pattern):
                raise ValueError(f"{name} is no setting of a run that trains by your own loop: {instead}")
    if epochs is not None and (not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1):
        raise ValueError(f"epochs = {epochs!r}: expected a whole number, at least 1")
    chosen = {"task": "own-loop", "engine": "own-loop", "precision": "float32", "cycle.epochs": epochs or 1}
    require_known_names(options, prune_with)
    names = tracker_names(trackers)
    configs = configs_of_seeds("custom", {**options, **chosen}, seeds)
    task = OwnLoopTask(
        train,
        model,
        evaluate,
        loss=loss,
        refresh=refresh,
        maximise=maximise,
        settings=settings,
        knows_epochs=epochs is not None,
        averages=averages(configs[0]),
        device=resolve_device(configs[0].device),
        prunable=prunable,
        exclude=exclude,
    )
    check(configs[0], task)
    return prune_task(configs, task, seeds=seeds, out=out, cache=cache, listener=listener, trackers=names, quiet=quiet)


def averages(config: Config) -> bool:
    """Whether the method averages the last epochs of any training (SWA)."""
    swa = getattr(config.selected("method"), "swa", False)
    return any(at_cycle(swa, cycle) for cycle in range(config.pruning.cycles + 1))


def check(config: Config, task: OwnLoopTask) -> None:
    """Refuse what a loop cannot be asked for, before anything is trained."""
    method, settings = config.method_module, config.selected("method")
    if "loss" in method.uses and task.given_loss is None:
        raise ValueError(f"method {config.method!r} scores the weights before training: give loss, a function of a model")
    if not suits_loops(method):
        reason = (
            "selects by examples that only your loop knows" if method.selects else "does more in a training than a loop can be asked for"
        )
        known = ", ".join(name for name, other in methods().items() if suits_loops(other))
        raise ValueError(f"method {config.method!r} {reason}; expected one of {known}")
    if "average" in method.uses and batchnorm_layers(task.model()) and task.refresh is None:
        raise ValueError(
            "the model has BatchNorm, or InstanceNorm that tracks statistics, which must be recomputed for averaged weights: give refresh, "
            "a function that passes training data through the model it is given"
        )
    has_ticket = config.pruning.rewind == "weights" and config.ticket.epochs
    if task.averages and not task.knows_epochs and not has_ticket:
        raise ValueError("SWA averages the last quarter of the epochs, whose number is not known without a ticket: give epochs=")
    length = getattr(settings, "length", 1.0)
    if length != 1.0 and not task.knows_epochs:
        raise ValueError(
            f"method {config.method!r} trains {length:g} times as long as a cycle: give epochs= and loop over range(run.epochs)"
        )


def suits_loops(method: Method) -> bool:
    """Whether trainings that begin and end with weights are all that a method asks for, beside a loss for scores."""
    return "steps" not in method.uses and not method.selects
