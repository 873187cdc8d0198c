"""Names by which other libraries call what is a setting here, so that an unknown name gets the right hint."""

from __future__ import annotations

_NAMES = {
    "cycle.epochs": ("epochs", "epoch", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs"),
    "cycle.learning_rate": ("lr", "learning_rate", "base_lr", "max_lr"),
    "cycle.warmup": ("warmup", "warmup_epochs"),
    "cycle.shape": ("scheduler", "lr_scheduler", "schedule", "lr_schedule"),
    "optimizer.name": ("optim", "opt"),
    "optimizer.weight_decay": ("weight_decay", "wd"),
    "optimizer.momentum": ("momentum",),
    "pruning.sparsity": ("target_sparsity", "final_sparsity", "sparsity", "sparsity_level", "sparsity_ratio", "pruning_ratio", "amount"),
    "pruning.cycles": ("cycles", "num_cycles", "rounds", "num_rounds", "levels", "iterations"),
    "pruning.prune_fraction": ("prune_fraction", "alpha", "pruning_rate", "prune_rate", "fraction"),
    "pruning.pattern": ("pattern", "structure", "round_to"),
    "pruning.rewind": ("rewind",),
    "methods.swamp.particles": ("particles", "num_particles", "n_particles"),
    "ticket.epochs": ("rewind_epochs", "ticket_epochs"),
    "device": ("gpu", "gpus", "cuda", "accelerator"),
    "precision": ("dtype", "amp", "mixed_precision"),
    "seed": ("random_state", "random_seed", "manual_seed", "rng"),
}
OTHER_NAMES = {other: setting for setting, others in _NAMES.items() for other in others}  # other name -> dotted name of the setting
OTHER_KEYWORDS = {  # other name -> keyword of `swamp.prune`, `run` or `rows`
    "tracker": "trackers",
    "logger": "trackers",
    "loggers": "trackers",
    "callback": "listener",
    "callbacks": "listener",
    "criterion": "loss",
    "loss_fn": "loss",
    "metrics": "metric",
    "directory": "out",
    "output_dir": "out",
    "out_dir": "out",
    "bs": "batch_size",
    "val": "validation",
    "validation_split": "validation",
    "ignore": "exclude",
    "ignored_layers": "exclude",
    "verbose": "quiet",
}


def in_python(setting: str) -> str:
    """Return how a setting is given to a function.

    >>> in_python("cycle.epochs"), in_python("methods.swamp.particles"), in_python("device"), in_python("pruning.sparsity")
    ('cycle={"epochs": …}', 'methods={"swamp": {"particles": …}}', 'device=…', 'sparsity=…')
    """
    if setting == "pruning.sparsity":
        return "sparsity=…"  # the shorthand
    first, *inner = setting.split(".")
    value = "…"
    for part in reversed(inner):
        value = f'{{"{part}": {value}}}'
    return f"{first}={value}"
