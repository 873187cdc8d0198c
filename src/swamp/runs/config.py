"""The configuration of a run. It is built of layers: a recipe over its base, a preset over that, and the command line on top."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Meta, Struct, structs

from swamp import tasks
from swamp.core.discovery import modules_with
from swamp.core.errors import nearest
from swamp.core.job import Numerics, Optimizer
from swamp.core.keys import canonical
from swamp.core.machine import resolve_device
from swamp.core.pruning import Pruning
from swamp.core.schedules import SWA, Schedule
from swamp.engines import default_engine, engine_modules, find_engine
from swamp.engines.engine import EngineModule
from swamp.methods import find_method, methods
from swamp.methods.method import Keep, Method
from swamp.runs.rates import with_rates, without_outdated_rates
from swamp.runs.recipes import (
    DEFAULT_RECIPE,
    SELECTORS,
    TomlTable,
    layered,
    merge,
    merge_all,
    nested,
    read_chain,
    recipe_texts,
    scaled,
    shortest,
)
from swamp.runs.settings import convert, flat, plain
from swamp.store.finding import is_in_run_directory
from swamp.tasks.datasets.dataset import ONE_BATCH

# Settings that do not decide a run's numbers and may change when it is resumed. Tasks list theirs in `operational`.
OPERATIONAL = ("recipe", "notes", "engine", "engines", "device", "keep", "checkpoint_seconds", "evaluate_every")
SHORTHANDS = ("data", "limit_examples", "scale", "sparsity", "fast")  # what `build_config` takes beside settings
HELD_OUT = 0.1  # the share of training examples that a method which selects holds out by default


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a run."""

    recipe: Annotated[str, Meta(description="Name of the recipe.")] = DEFAULT_RECIPE
    notes: Annotated[str, Meta(description="Free text.")] = ""
    task: Annotated[str, Meta(description="Kind of task; its settings are in [tasks.NAME].")] = "image"
    method: Annotated[str, Meta(description="Method or preset that prunes; its settings are in [methods.NAME].")] = "swamp"
    engine: Annotated[
        str,
        Meta(
            description="Trains the networks; settings are in [engines.NAME]. auto: processes on a CPU, graphed on CUDA, else sequential."
        ),
    ] = "auto"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="Seed of everything random.")] = 0
    device: Annotated[str, Meta(description="auto, cpu, cuda, cuda:1, mps, …")] = "auto"
    precision: Annotated[
        Literal["auto", "float32", "bf16"], Meta(description="bf16: forward passes in bfloat16. auto: bf16 on CUDA, else float32.")
    ] = "auto"
    threads: Annotated[int, Meta(ge=1, le=1024, description="CPU threads of each training; the last bits depend on their number.")] = 1
    deterministic: Annotated[bool, Meta(description="Equal bits on one GPU model, but slower; on a CPU bits are always equal.")] = False
    compile: Annotated[
        bool,
        Meta(description="On a CPU, compile the step: that takes minutes once, then convolutions are faster; the last bits differ."),
    ] = False
    start: Annotated[
        str,
        Meta(description="File with weights that replace the random init; the mask of a sparse file becomes the first mask."),
    ] = ""
    keep: Annotated[Keep, Meta(description="Weights that stay on disk: of all particles, of the averages, or of the last row.")] = "all"
    checkpoint_seconds: Annotated[
        float, Meta(ge=0, description="A training saves its state at the end of an epoch, at most once in so many seconds.")
    ] = 15.0
    evaluate_every: Annotated[
        int,
        Meta(ge=0, le=100_000, description="Each training is evaluated after so many epochs, on validation or else test data; 0 never."),
    ] = 0
    pruning: Pruning = Pruning()
    ticket: Schedule = Schedule(epochs=10, shape="constant")
    cycle: Schedule = Schedule()
    swa: SWA = SWA()
    optimizer: Optimizer = Optimizer()
    tasks: TomlTable = {}
    methods: TomlTable = {}
    engines: TomlTable = {}

    def __post_init__(self) -> None:
        if self.cycle.epochs < 1:
            raise ValueError("cycle.epochs = 0: a cycle trains for at least 1 epoch")
        for name, schedule in (("ticket", self.ticket), ("cycle", self.cycle)):
            if schedule.warmup > schedule.epochs:
                raise ValueError(f"{name}.warmup = {schedule.warmup} is longer than {name}.epochs = {schedule.epochs}")

    def selected(self, selector: str) -> Any:
        """Return the typed settings of the selected task, method or engine."""
        module = module_of(selector, getattr(self, selector))
        table = SELECTORS[selector]
        return convert(getattr(self, table).get(module.name, {}), module.Config, f"{table}.{module.name}")

    @property
    def title(self) -> str:
        """The name of a run for which no other is given."""
        return f"{self.recipe}-{self.method}-seed{self.seed}"

    @property
    def method_module(self) -> Method:
        return find_method(self.method)[0]

    @property
    def engine_module(self) -> EngineModule:
        """The engine that is selected. What `auto` selects depends on the device."""
        return find_engine(default_engine(resolve_device(self.device, here=False).type) if self.engine == "auto" else self.engine)

    @property
    def numerics(self) -> Numerics:
        assert self.precision != "auto"
        return Numerics(precision=self.precision, threads=self.threads, deterministic=self.deterministic, compile=self.compile)


@cache
def task_modules() -> dict[str, types.ModuleType]:
    """Return all kinds of tasks by name."""
    return modules_with(tasks, "build")


def selectable() -> dict[str, dict[str, Any]]:
    """Return all that can be selected, by table and name."""
    return {"tasks": dict(task_modules()), "methods": dict(methods()), "engines": dict(engine_modules())}


def module_of(selector: str, name: str) -> Any:
    """Return the module of a task, method or engine."""
    if selector == "method":
        return find_method(name)[0]
    if selector == "engine":
        return find_engine(name)
    if name not in task_modules():
        raise ValueError(f"unknown task {name!r}; {nearest(name, task_modules())}; a task of your own is named as module:function")
    return task_modules()[name]


def build_config(recipe: str | os.PathLike[str] = DEFAULT_RECIPE, settings: Mapping[str, Any] | None = None, trust: bool = False) -> Config:
    """Return the complete configuration of a recipe with some settings changed.

    `settings` is nested like a recipe, or has dotted names: {"cycle.epochs": 20}. The shorthands (`SHORTHANDS`) are allowed too. Code that
    a file in a run directory names must be named by the settings too, unless there is `trust`.
    """
    given = plain(settings or {})
    data, limit, scale, sparsity, fast = (given.pop(name, None) for name in SHORTHANDS)
    if sparsity == 0 and sparsity is not False:
        raise ValueError(
            f"sparsity = {sparsity}: expected a share of the weights above 0, such as 0.9; method 'dense' trains without pruning"
        )
    if sparsity is not None:
        given = nested({**nested(given), "pruning.sparsity": sparsity})
    chain = read_chain(os.fspath(recipe))
    layers = layered([*chain.values(), _changes(given)])
    of_task = {"data": data, "limit_examples": ONE_BATCH if fast else limit}
    layers += [_task_setting(merge_all(layers), name, value) for name, value in of_task.items() if value is not None]
    # A preset goes right under the layer that names it, so that the settings of that layer win.
    named = max(index for index, layer in enumerate(layers) if "method" in layer or not index)
    if isinstance(method := layers[named].get("method"), str) and (preset := find_method(method)[1]):
        pruning = convert(merge_all(layers).get("pruning", {}), Pruning, "pruning")
        layers.insert(named, preset.settings(pruning))
    asked = merge_all(without_outdated_rates(layers))
    received = [Path(name) for name in chain if name not in recipe_texts() and is_in_run_directory(Path(name))]
    if received and not trust:  # such as the config.toml of a run
        require_trust(complete(asked), received[-1], named=given, can_trust=False)
    config = with_absolute_start(complete(asked))
    config = config if scale is None else complete(scaled(msgspec.to_builtins(config), scale))
    return complete(shortest(msgspec.to_builtins(config))) if fast else config


def _task_setting(asked: TomlTable, name: str, value: Any) -> TomlTable:
    """Return a setting of the task that was asked for. A data folder is absolute, so that the run can be resumed from anywhere."""
    task = str(asked.get("task"))
    if name not in [field.name for field in structs.fields(module_of("task", task).Config)]:
        raise ValueError(f"{name} = {str(value)!r}: task {task!r} has no such setting")
    return {"tasks": {task: {name: str(Path(value).expanduser().absolute()) if name == "data" else value}}}


def with_absolute_start(config: Config) -> Config:
    """Return the configuration with the whole path of the file that it starts from, so that the run can be resumed from anywhere."""
    return structs.replace(config, start=str(Path(os.path.expanduser(config.start)).absolute())) if config.start else config


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return a complete configuration with some settings changed. The shorthand `data` is allowed too."""
    given = dict(settings)
    data = given.pop("data", None)
    changed = merge(msgspec.to_builtins(config), _changes(given))
    return complete(changed if data is None else merge(changed, _task_setting(changed, "data", data)))


def _changes(settings: Mapping[str, Any]) -> TomlTable:
    """Return settings as nested tables. A task may be named by the function that makes it, as module:function."""
    changes = nested(settings)
    if ":" in str(changes.get("task")):
        changes = merge(changes, {"task": "custom", "tasks": {"custom": {"factory": changes["task"]}}})
    return changes


def complete(settings: TomlTable) -> Config:
    """Check all settings and return the configuration, with all settings of the selected task, method and engine and of no others."""
    if settings.get("precision") in ("fp16", "float16", "half"):
        raise ValueError(
            f"precision = {settings['precision']!r} is not offered: gradients in float16 need loss scaling, which skips the steps that "
            "overflow, so that schedules and numbers of steps would not be what they say; use 'bf16' or 'float32'"
        )
    config = cast(Config, convert(with_rates(settings), Config))
    if config.method_module.selects:
        config = structs.replace(config, tasks=_with_held_out(config))
    for table, names in selectable().items():
        for name in getattr(config, table):
            if name not in names:
                raise ValueError(f"unknown table [{table}.{name}]; {nearest(name, names)}")
    filled = {}
    for selector, table in SELECTORS.items():
        if selector == "engine" and config.engine == "auto":
            continue  # It is selected when the device is known.
        filled[table] = {module_of(selector, getattr(config, selector)).name: msgspec.to_builtins(config.selected(selector))}
    return structs.replace(config, **filled)


def _with_held_out(config: Config) -> TomlTable:
    """Return the tables of the tasks, with training examples held out for validation if none were."""
    settings = msgspec.to_builtins(config.selected("task"))
    if settings.get("validation") != 0:
        return config.tasks
    return {**config.tasks, config.task: {**settings, "validation": HELD_OUT}}


# -- code that a configuration names ----------------------------------------------------------------------------------------------


class CodeSetting(NamedTuple):
    """A setting that leads to code which is run."""

    name: str  # dotted
    option: str  # on the command line
    value: str

    def __str__(self) -> str:
        return f"--{self.option} {shlex.quote(self.value)}"


def code_settings(config: Config, selectors: Sequence[str] = ("task", "engine")) -> list[CodeSetting]:
    """Return the settings that lead to code which is run: the function that makes the task, and the cluster that trains."""
    found = []
    for selector in selectors:
        if (name := getattr(config, selector)) == "auto":
            continue
        module, table = module_of(selector, name), SELECTORS[selector]
        settings = msgspec.to_builtins(config.selected(selector))
        for key, option in getattr(module, "needs_trust", {}).items():
            if settings[key]:
                found.append(CodeSetting(f"{table}.{module.name}.{key}", option, settings[key]))
    return found


def require_trust(
    config: Config,
    place: Path,
    trust: bool = False,
    named: Mapping[str, Any] | None = None,
    selectors: Sequence[str] = ("task", "engine"),
    can_trust: bool = True,
) -> None:
    """Check that the user wants the code that a configuration leads to, which was read from a run directory.

    People send run directories to each other, so that what one of them names is imported only if the user has `named` it too, as a
    setting, or trusts the directory, where the command `can_trust` one.
    """
    by_user = dict(flat(_changes(named or {})))
    unknown = [setting for setting in code_settings(config, selectors) if setting.name not in by_user]
    if unknown and not trust:
        what = ", ".join(f"{setting.name} = {setting.value!r}" for setting in unknown)
        named_again = " ".join(map(str, unknown))
        otherwise = " or trust the directory (--trust, in Python trust=True)" if can_trust else ""
        raise ValueError(
            f"{place} names code that would be run here: {what}; if you want that, name it yourself ({named_again}, in Python task=…)"
            f"{otherwise}"
        )


# -- what decides the numbers -----------------------------------------------------------------------------------------------------


def resolve(config: Config, frozen: Mapping[str, Any] | None = None, here: bool = True) -> Config:
    """Replace every `auto` by its value on this machine. Precision stays as it was when the run began (`frozen`). The device and the
    compiler must be there unless nothing is computed `here`."""
    device = resolve_device(config.device, here)
    if config.compile and device.type != "cpu":
        raise ValueError(f"compile = true is for trainings on a CPU, not on {device}; [engines.NAME] may have a setting `compile` for it")
    if config.compile and here and not any(map(shutil.which, (os.environ.get("CXX", ""), "g++", "clang++"))):
        raise ValueError("compile = true needs a C++ compiler, and there is no g++ or clang++")
    precision = config.precision
    if precision == "auto":
        precision = frozen["precision"] if frozen else ("bf16" if device.type == "cuda" else "float32")
    engine = config.engine_module.name
    return complete(msgspec.to_builtins(structs.replace(config, device=str(device), precision=precision, engine=engine)))


def deciding_settings(config: Config) -> TomlTable:
    """Return the settings that decide the numbers of a run, by dotted name."""
    plain: TomlTable = msgspec.to_builtins(config)
    plain["method"] = config.method_module.name
    kept = {key: value for key, value in plain.items() if key not in OPERATIONAL}
    ignored = {f"tasks.{config.task}.{name}" for name in getattr(module_of("task", config.task), "operational", ())}
    return {name: value for name, value in flat(kept) if name not in ignored}


def config_hash(config: Config) -> str:
    """Return a hash of the settings that decide the numbers of a run."""
    return hashlib.sha256(canonical(deciding_settings(config))).hexdigest()[:16]
