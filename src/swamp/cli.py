"""The command line."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter

from swamp.commands.ablate import ablate
from swamp.commands.analyse import analyse
from swamp.commands.arguments import parse_counts, parse_methods, parse_seeds, recipe_and_settings, split_arguments
from swamp.commands.bench_inference import bench_inference
from swamp.commands.compare import compare
from swamp.commands.execution import execute, show_plan
from swamp.commands.export import export
from swamp.commands.figure import figure
from swamp.commands.progress_options import PROGRESS_OPTIONS, ProgressOptions
from swamp.commands.report import report
from swamp.commands.reproduce import reproduce
from swamp.commands.sweep import sweep
from swamp.commands.watch import watch
from swamp.version import __version__

if TYPE_CHECKING:
    from swamp.runs.config import Config

app = App(
    name="swamp",
    version=__version__,
    help="Find highly sparse neural networks.\n\n"
    "A run trains, averages, prunes and rewinds as a recipe says, and writes all it finds to a directory. Begin with: swamp run",
)

app.command(sweep, usage="Usage: swamp sweep GRID.toml [RECIPE] [--setting VALUE …] [OPTIONS]")
app.command(reproduce, usage="Usage: swamp reproduce [TARGET] [--setting VALUE …] [OPTIONS]")
app.command(ablate, usage="Usage: swamp ablate [NAME] [RECIPE] [--setting VALUE …] [OPTIONS]")
app.command(report)

Directory = Annotated[Path, Parameter(help="A run directory, or a group of them (DIR/seed-0, DIR/seed-1, …).")]


@app.command(usage="Usage: swamp run [RECIPE] [--setting VALUE …] [OPTIONS]")
def run(
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True, name="RECIPE", negative=())],
    out: Path | None = None,
    seeds: str | None = None,
    cache: Path | None = None,
    data: Path | None = None,
    scale: float | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    progress: ProgressOptions = PROGRESS_OPTIONS,
) -> None:
    """Run a recipe, or go on with a run that was stopped.

    RECIPE is a built-in recipe (digits is the default; `swamp recipes` lists them) or a TOML file.

    Every setting can be changed by its dotted name: --method imp, --device cuda, --precision bf16, --cycle.epochs 20,
    --pruning.prune_fraction 0.2, --methods.swamp.particles 0:1,10:4 (one particle from cycle 0 on, four from cycle 10 on).
    `swamp recipes digits` shows all settings with what they mean.

    A model and data of your own: swamp run custom --task module:function, whose function returns a swamp.CustomTask (docs/custom.md).

    The run can be stopped at any moment, by Ctrl-C or by a power cut: the same command goes on where it was, and ends with the
    same bytes. A directory that holds a run with another configuration is refused.

    Parameters
    ----------
    arguments
        The recipe, and settings as --name value.
    out
        Directory of the run. Default: runs/RECIPE-METHOD-seedK.
    seeds
        Several runs, such as 0,1,2, each in DIR/seed-K. Several methods (--method imp,swamp) make DIR/METHOD or DIR/METHOD-seed-K.
        They run one after the other, and on a CUDA device side by side.
    cache
        Directory in which runs share tickets, masks and everything else that they have in common.
    data
        Folder that holds your data sets. Default: the environment's SWAMP_DATA.
    scale
        Factor of all epoch counts, such as 0.1 for a tenth; each is rounded, and is at least 1.
    dry_run
        Show what would be done (what is pruned, sparsities, cost, disk, time), and do nothing.
    """
    recipe, settings = recipe_and_settings(arguments)
    settings |= {name: value for name, value in (("data", data), ("scale", scale)) if value is not None}
    progress.check()
    jobs, group = asked_runs(recipe, settings, parse_seeds(seeds) if seeds is not None else [], out)
    if dry_run:
        for one, directory in jobs:
            show_plan(one, directory)
        return
    execute(jobs, cache, group, progress=progress)


@app.command(usage="Usage: swamp resume DIR [--setting VALUE …] [OPTIONS]")
def resume(
    directory: Directory,
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True, name="SETTINGS")],
    cache: Path | None = None,
    task: str | None = None,
    progress: ProgressOptions = PROGRESS_OPTIONS,
) -> None:
    """Go on with a run that was stopped; the same as the command that began it.

    Settings that decide no numbers may change: --device, --engine, --keep, --checkpoint_seconds, --notes.

    Parameters
    ----------
    arguments
        Settings as --name value.
    cache
        Directory in which runs share what they have in common.
    task
        module:function that makes the task of a run that a Python script began.
    """
    from swamp.runs.config import with_settings
    from swamp.runs.stored import read_config
    from swamp.store.directory import runs_in

    alone, settings = split_arguments(arguments)
    if alone:
        raise ValueError(f"one directory at a time, not {', '.join(alone)} too; settings are written --name value")
    if task is not None:
        settings["task"] = task
    progress.check()
    execute([(with_settings(read_config(path), settings), path) for path in runs_in(directory)], cache, directory, progress=progress)


@app.command
def show(directory: Directory, /) -> None:
    """Show a run: its rows, how it was made, and whether it is finished."""
    from swamp.report.tables import run_table
    from swamp.runs.stored import read_config
    from swamp.store.directory import Store, runs_in
    from swamp.store.records import read_results, resume_command
    from swamp.terminal import print_table

    for path in runs_in(directory):
        config, store = read_config(path), Store(path)
        print_table(run_table(path))
        rows, again = len(read_results(path)), resume_command(path)
        failed = f", it failed: {why}" if (why := store.journal.failure()) else ""
        state = "finished" if store.finished() else f"not finished ({rows} rows so far){failed}; go on with: {again}"
        header = store.header() or {}
        version = header["versions"]
        print(f"{path}: {state}")
        print(f"configuration {header['config_hash']}, readable in {path / 'config.toml'}")
        print(
            f"{config.precision}, {config.threads} thread(s) a training, begun with swamp {version['swamp']} and torch {version['torch']}"
        )
        if store.finished() and (altered := store.altered()):
            print(f"since then {altered}; `{again}` puts that right")


@app.command
def ensemble(
    *directories: Directory, json: Annotated[bool, Parameter(negative=())] = False, task: str | None = None, device: str = "auto"
) -> None:
    """Average the predictions of several runs' networks at each sparsity (of IMP runs: IMP-n).

    The runs need different seeds, so that their networks were found independently, and their weights (keep = all or averages). What was
    found is kept in analysis/ensemble-N.json of the first directory, for figures.

    Parameters
    ----------
    directories
        Run directories or groups of them.
    json
        Print JSON.
    task
        module:function that makes the task of runs that a Python script began.
    device
        Where the networks are run: cpu, cuda, …
    """
    import msgspec

    from swamp.analyses.ensemble import ensemble as average
    from swamp.analyses.ensemble import keep_ensemble
    from swamp.report.tables import ensemble_table
    from swamp.store.directory import runs_in
    from swamp.store.files import explain_os_error
    from swamp.tasks import custom
    from swamp.terminal import print_table

    paths = [path for directory in directories for path in runs_in(directory)]
    rows = list(average(paths, custom.build(custom.Config(factory=task)) if task else None, device))
    try:
        keep_ensemble(directories[0], paths, rows)
    except OSError as error:  # such as a place that may only be read
        print(f"swamp: not kept for figures: {explain_os_error(error)}", file=sys.stderr)
    if json:
        print(msgspec.json.format(msgspec.json.encode(rows)).decode())
    else:
        print_table(ensemble_table(rows))


@app.command
def methods(name: str | None = None, /) -> None:
    """List the methods and presets: what they do, what they cost, and where they come from. Or explain one of them.

    Parameters
    ----------
    name
        A method or preset.
    """
    from swamp.drawing.tables import Table
    from swamp.methods import find_method
    from swamp.methods import methods as all_methods
    from swamp.report.pages import method_page
    from swamp.terminal import print_table

    if name:
        print(method_page(find_method(name)[0]))
        return
    rows = []
    for known, method in all_methods().items():
        rows.append([known, method.summary, method.cost, method.paper])
        rows += [[preset.name, preset.summary, "", f"preset of {known}"] for preset in method.presets]
    print_table(Table("Methods (swamp run RECIPE --method NAME)", ["name", "what it does", "cost / IMP", "paper"], rows))


@app.command
def recipes(name: str | None = None, /) -> None:
    """List the recipes, or print one of them: complete, as TOML, each setting explained.

    Parameters
    ----------
    name
        A built-in recipe or a TOML file.
    """
    from swamp.drawing.tables import Table
    from swamp.runs.config import build_config, to_toml
    from swamp.runs.recipes import header_of, merge_all, read_layers, recipe_texts
    from swamp.terminal import print_table

    if name:
        text = to_toml(build_config(name), merge_all(read_layers(name)))
        print(header_of(name) + text, end="")
        return
    rows = [[recipe, text.splitlines()[0].lstrip("# ")] for recipe, text in recipe_texts().items()]
    print_table(Table("Recipes (swamp run NAME)", ["name", "what it is"], rows))


@app.command(usage="Usage: swamp bench [RECIPE] [--setting VALUE …] [OPTIONS]")
def bench(
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True, name="RECIPE", negative=())],
    particles: str = "1,2,4,8",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Measure how fast this machine trains a recipe, on each engine and with several particles at once.

    Parameters
    ----------
    arguments
        The recipe, and settings as --name value, as for `swamp run`.
    particles
        How many particles to train at once, such as 1,4.
    json
        Print JSON.
    """
    import msgspec

    from swamp.report.tables import bench_table
    from swamp.runs.bench import bench as time_engines
    from swamp.runs.bench import measure_machine, variants
    from swamp.runs.config import build_config, resolve
    from swamp.terminal import print_table

    recipe, settings = recipe_and_settings(arguments)
    config = resolve(build_config(recipe, settings))
    counts = parse_counts("--particles", particles)
    machine = measure_machine(config)
    timings = list(time_engines(config, machine, variants(config), counts))
    if json:
        print(msgspec.json.format(msgspec.json.encode({"machine": machine, "timings": timings})).decode())
    else:
        print_table(bench_table(machine, timings))


app.command(analyse)
app.command(compare)
app.command(figure)
app.command(watch)
app.command(export)
app.command(bench_inference)


# -- below the commands -----------------------------------------------------------------------------------------------------------


def asked_runs(recipe: str, settings: Mapping[str, Any], seeds: Sequence[int], out: Path | None) -> tuple[list[tuple[Config, Path]], Path]:
    """A run for each method and seed, with its directory, and the directory that stands for all of them."""
    from swamp.api import default_directory
    from swamp.runs.config import build_config

    if seeds and "seed" in settings:
        raise ValueError("give either --seed or --seeds")
    methods = parse_methods(settings["method"]) if "method" in settings else []
    choices = [{"method": method} for method in methods] or [{}]
    configs = [build_config(recipe, {**settings, **choice, **seed}) for choice in choices for seed in [{"seed": s} for s in seeds] or [{}]]
    if len(methods) < 2 and not seeds:
        group = out or default_directory(configs[0])
        return [(configs[0], group)], group
    group = out or Path("runs") / "-".join([configs[0].recipe, *dict.fromkeys(config.method for config in configs)])
    named = [([config.method] if len(methods) > 1 else []) + ([f"seed-{config.seed}"] if seeds else []) for config in configs]
    return [(config, group / "-".join(name)) for config, name in zip(configs, named, strict=True)], group


def fail(message: str, status: int) -> NoReturn:
    print(f"swamp: {message}", file=sys.stderr)
    raise SystemExit(status)


def nobody_reads() -> bool:
    """Whether the reader of our output has left. If so, nothing more is written to it, at the process's end either."""
    output, poll = 1, select.poll()
    poll.register(output, 0)
    left = any(event & select.POLLERR for _, event in poll.poll(0))
    if left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return left


def raised_by_swamp(error: BaseException) -> bool:
    """Whether our own code raised it, knowing what it says; torch and others raise ValueError too."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or str(trace.tb_frame.f_globals.get("__name__", "")).startswith("swamp.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. A mistake of the user's gets one sentence and status 2, a failure on the way one sentence and status 1."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # --task module:function is looked for here first, as python -m would
    if int(os.environ.get("LOCAL_RANK", 0)) or int(os.environ.get("RANK", 0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # of the processes that torchrun starts, one speaks
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        print(end="", flush=True)  # where there is no output at all, python has no stdout
    except CycloptsError as error:
        fail(" ".join(str(error).split()), 2)
    except ValueError as error:
        if not raised_by_swamp(error):
            raise  # a defect, not a mistake of the user's
        fail(str(error), 2)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and nobody_reads():
            raise SystemExit(141) from None  # such as head, which has seen enough; what SIGPIPE would have given
        from swamp.store.files import explain_os_error

        fail(explain_os_error(error), 1)
    except RuntimeError as error:
        if not error.__class__.__module__.startswith("swamp."):
            raise
        fail(str(error), 1)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
