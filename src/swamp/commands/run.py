"""`swamp run`: train a recipe, or continue a run that was stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swamp.commands.arguments import PROGRESS_OPTIONS, Flag, ProgressOptions, RecipeArgument, parse_numbers, recipe_and_settings
from swamp.commands.execution import execute, show_plan

if TYPE_CHECKING:
    from swamp.runs.opening import RunRequest

group = "Train"
usage = "Usage: swamp run [RECIPE] [--setting VALUE …] [OPTIONS]"


def run(
    *arguments: RecipeArgument,
    out: Path | None = None,
    seeds: str | None = None,
    cache: Path | None = None,
    data: Path | None = None,
    sparsity: float | None = None,
    scale: float | None = None,
    limit_examples: str | None = None,
    fast: Flag = False,
    dry_run: Flag = False,
    progress: ProgressOptions = PROGRESS_OPTIONS,
) -> None:
    """Run a recipe, or continue a run that was stopped.

    RECIPE is a built-in recipe (digits is the default; `swamp recipes` lists them) or a TOML file.

    Every setting can be changed by its dotted name: --method imp, --device cuda, --precision bf16, --cycle.epochs 20,
    --pruning.prune_fraction 0.2, --methods.swamp.particles 0:1,10:4 (one particle from cycle 0 on, four from cycle 10 on).
    `swamp recipes digits` shows all settings with what they mean.

    A model and data of your own: swamp run custom --task module:function, whose function returns a swamp.CustomTask (docs/custom.md).

    The run can be stopped at any moment, by Ctrl-C or by a power cut. The same command then continues it, and the result has
    the same bytes. A directory that holds a run with another configuration is refused.

    Parameters
    ----------
    arguments
        The recipe, and settings as --name value.
    out
        Directory of the run. Default: runs/RECIPE-METHOD-seedK.
    seeds
        Seeds of several runs, such as 0,1,2. Each run goes to DIR/seed-K; with several methods (--method imp,swamp) to DIR/METHOD or
        DIR/METHOD-seed-K. The runs follow each other; on a CUDA device they train side by side.
    cache
        Directory in which runs share tickets, masks and everything else that they have in common.
    data
        Folder that holds your data sets. Default: the environment's SWAMP_DATA.
    sparsity
        Share of the weights that is pruned at the end, such as 0.9, in place of --pruning.cycles: the last cycle has exactly this sparsity.
    scale
        Factor of all epoch counts, such as 0.1 for a tenth; each is rounded, and is at least 1.
    limit_examples
        Use at most so many examples of each split, always the same ones; batch means one batch. Default: all.
    fast
        Try the set-up in seconds: one batch, one epoch of each training, one pruning, to --sparsity if it is given. The numbers
        mean nothing.
    dry_run
        Show what would be done (what is pruned, sparsities, cost, disk, time) and do nothing.
    """
    from swamp.runs.settings import parse_value
    from swamp.terminal import print_remark

    recipe, settings = recipe_and_settings(arguments, run)
    limit = parse_value(int | str, limit_examples) if limit_examples is not None else None
    short = {"data": data, "sparsity": sparsity, "scale": scale, "limit_examples": limit, "fast": fast or None}
    settings |= {name: value for name, value in short.items() if value is not None}
    progress.check()
    requests, group = asked_runs(recipe, settings, parse_numbers("--seeds", seeds, different=True) if seeds is not None else [], out)
    for remark in without_effect(settings, requests):
        print_remark(remark)
    if dry_run:
        show_plan(requests, cache)
    else:
        execute(requests, cache, group, progress)


def asked_runs(recipe: str, settings: Mapping[str, Any], seeds: Sequence[int], out: Path | None) -> tuple[list[RunRequest], Path]:
    """Return a request for each method and seed, and the directory that stands for all of them."""
    from swamp.runs.config import build_config
    from swamp.runs.opening import RunRequest

    if seeds and "seed" in settings:
        raise ValueError("give either --seed or --seeds")
    methods = parse_methods(settings["method"]) if "method" in settings else []
    choices = [{"method": method} for method in methods] or [{}]
    configs = [build_config(recipe, {**settings, **choice, **seed}) for choice in choices for seed in [{"seed": s} for s in seeds] or [{}]]
    if len(methods) < 2 and not seeds:
        group = out or Path("runs") / configs[0].title
        return [RunRequest(configs[0], group)], group
    group = out or Path("runs") / "-".join([configs[0].recipe, *dict.fromkeys(config.method for config in configs)])
    named = [([config.method] if len(methods) > 1 else []) + ([f"seed-{config.seed}"] if seeds else []) for config in configs]
    return [RunRequest(config, group / "-".join(name)) for config, name in zip(configs, named, strict=True)], group


def without_effect(settings: Mapping[str, Any], requests: Sequence[RunRequest]) -> list[str]:
    """Say which settings are of a method that none of these runs uses, since a recipe has those of all methods."""
    used = {request.config.method_module.name for request in requests}
    named = [name for name in settings if name.startswith("methods.") and name.split(".")[1] not in used]
    return [f"--{name} has no effect on the method {', '.join(sorted(used))}" for name in named]


def parse_methods(text: str) -> list[str]:
    """Return the methods in a text such as imp,swamp.

    >>> parse_methods("imp,swamp")
    ['imp', 'swamp']
    """
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names):
        raise ValueError(f"--method {text}: expected different methods")
    return names
