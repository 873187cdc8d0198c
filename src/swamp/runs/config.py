"""Configuration: typed, complete, layered. A recipe over its base, a preset over that, the command line on top."""

from __future__ import annotations

import hashlib
import os
import shutil
import types
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
import torch
from msgspec import Meta, Struct, structs

from swamp import tasks
from swamp.core.discovery import modules_with
from swamp.core.errors import nearest
from swamp.core.job import Numerics, Optimizer
from swamp.core.keys import canonical
from swamp.core.pruning import Pruning
from swamp.core.schedules import SWA, Schedule
from swamp.engines import default_engine, engine_modules, find_engine
from swamp.engines.engine import EngineModule
from swamp.methods import find_method, methods
from swamp.methods.method import Keep, Method
from swamp.runs.recipes import DEFAULT_RECIPE, SELECTORS, TomlTable, merge, merge_all, nested, read_layers
from swamp.runs.settings import bare, convert, description, parse_value, toml_text
from swamp.runs.shorthands import data_setting, scaled, task_setting

# What does not decide the numbers of a run, and may change when it is resumed; tasks name settings of theirs in `operational`.
OPERATIONAL = ("recipe", "notes", "engine", "engines", "device", "keep", "checkpoint_seconds")
SHORT_NAMES = {"ray-address": "engines.ray.address"}  # on the command line
HELD_OUT = 0.1  # of the training examples, for a method that selects


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run, completely."""

    recipe: Annotated[str, Meta(description="Name of the recipe, for people.")] = DEFAULT_RECIPE
    notes: Annotated[str, Meta(description="Anything worth remembering.")] = ""
    task: Annotated[str, Meta(description="What is learnt; its settings stand in [tasks.NAME].")] = "image"
    method: Annotated[str, Meta(description="How it is pruned, a method or a preset; settings stand in [methods.NAME].")] = "swamp"
    engine: Annotated[
        str,
        Meta(
            description="Where jobs are trained; its settings: [engines.NAME]. auto: processes on a CPU, graphed on CUDA, else sequential."
        ),
    ] = "auto"
    seed: Annotated[int, Meta(ge=0, description="Everything random follows from it.")] = 0
    device: Annotated[str, Meta(description="auto, cpu, cuda, cuda:1, mps, …")] = "auto"
    precision: Annotated[
        Literal["auto", "float32", "bf16"], Meta(description="bf16: forward passes in bfloat16. auto: bf16 on CUDA, else float32.")
    ] = "auto"
    threads: Annotated[int, Meta(ge=1, description="CPU threads for each training; the last bits depend on it.")] = 1
    deterministic: Annotated[bool, Meta(description="Equal bits on one GPU model, at some speed; CPUs give them anyway.")] = False
    compile: Annotated[
        bool, Meta(description="On a CPU, compile the step: some minutes at first, then convolutions are faster; other last bits.")
    ] = False
    start: Annotated[
        str,
        Meta(description="File whose weights take the place of the random init; the mask of a sparse file is where cycle 0 begins."),
    ] = ""
    keep: Annotated[Keep, Meta(description="Weights that stay on disk: of all particles, of the averages, or of the last row.")] = "all"
    checkpoint_seconds: Annotated[
        float, Meta(ge=0, description="A training saves its state at an epoch's end, when so many seconds have passed.")
    ] = 15.0
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
        """The typed settings of the selected task, method or engine."""
        module = module_of(selector, getattr(self, selector))
        table = SELECTORS[selector]
        return convert(getattr(self, table).get(module.name, {}), module.Config, f"{table}.{module.name}")

    @property
    def title(self) -> str:
        """What a run of it is called where it is not told otherwise."""
        return f"{self.recipe}-{self.method}-seed{self.seed}"

    @property
    def method_module(self) -> Method:
        return find_method(self.method)[0]

    @property
    def engine_module(self) -> EngineModule:
        """The engine that is selected. What `auto` selects depends on the device."""
        return find_engine(default_engine(resolve_device(self.device).type) if self.engine == "auto" else self.engine)

    @property
    def numerics(self) -> Numerics:
        assert self.precision != "auto"
        return Numerics(precision=self.precision, threads=self.threads, deterministic=self.deterministic, compile=self.compile)


def default_directory(config: Config) -> Path:
    """Return the directory of a run for which none is named."""
    return Path("runs") / config.title


@cache
def task_modules() -> dict[str, types.ModuleType]:
    return modules_with(tasks, "build")


def selectable() -> dict[str, dict[str, Any]]:
    """All that can be selected, by table and name."""
    return {"tasks": dict(task_modules()), "methods": dict(methods()), "engines": dict(engine_modules())}


def module_of(selector: str, name: str) -> Any:
    if selector == "method":
        return find_method(name)[0]
    if selector == "engine":
        return find_engine(name)
    if name not in task_modules():
        raise ValueError(f"unknown task {name!r}; {nearest(name, task_modules())}")
    return task_modules()[name]


def build_config(recipe: str = DEFAULT_RECIPE, settings: Mapping[str, Any] | None = None) -> Config:
    """The complete configuration of a recipe with some settings changed.

    `settings` is nested like a recipe, or has dotted names: {"cycle.epochs": 20}. The shorthands `data` and `scale` are allowed too.
    """
    given = dict(settings or {})
    data, scale = given.pop("data", None), given.pop("scale", None)
    changes = nested(given)
    if ":" in str(changes.get("task")):
        changes = merge(changes, task_setting(changes["task"]))
    layers = [*read_layers(recipe), changes]
    if data is not None:
        layers.append(data_setting(merge_all(layers), data, {setting.name for setting in all_settings()}))
    # a preset stands right below whoever names it, so that what stands beside the name wins
    named = max(index for index, layer in enumerate(layers) if "method" in layer or not index)
    if isinstance(method := layers[named].get("method"), str) and (preset := find_method(method)[1]):
        pruning = convert(merge_all(layers).get("pruning", {}), Pruning, "pruning")
        layers.insert(named, preset.settings(pruning))
    asked = merge_all(layers)
    return complete(asked) if scale is None else complete(scaled(msgspec.to_builtins(complete(asked)), scale))


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """A complete configuration with some settings changed."""
    changes = nested(settings)
    if ":" in str(changes.get("task")):
        changes = merge(changes, task_setting(changes["task"]))
    return complete(merge(msgspec.to_builtins(config), changes))


def complete(settings: TomlTable) -> Config:
    """Check everything, and write out the settings of what is selected (nothing else of those tables is read)."""
    config = cast(Config, convert(settings, Config))
    if config.method_module.selects:
        config = structs.replace(config, tasks=holding_out(config))
    for table, names in selectable().items():
        for name in getattr(config, table):
            if name not in names:
                raise ValueError(f"unknown table [{table}.{name}]; {nearest(name, names)}")
    filled = {}
    for selector, table in SELECTORS.items():
        if selector == "engine" and config.engine == "auto":
            continue  # settled when the device is known
        filled[table] = {module_of(selector, getattr(config, selector)).name: msgspec.to_builtins(config.selected(selector))}
    return structs.replace(config, **filled)


def holding_out(config: Config) -> TomlTable:
    """The tables of the tasks, with something held out of the training data where nothing was."""
    settings = msgspec.to_builtins(config.selected("task"))
    if settings.get("validation") != 0:
        return config.tasks
    return {**config.tasks, config.task: {**settings, "validation": HELD_OUT}}


# -- what decides the numbers -----------------------------------------------------------------------------------------------------


def resolve(config: Config, frozen: Mapping[str, Any] | None = None) -> Config:
    """Replace every `auto` by what this machine means by it; precision stays as it was at the run's first start (`frozen`)."""
    device = resolve_device(config.device)
    if config.compile and device.type != "cpu":
        raise ValueError(f"compile = true is for trainings on a CPU, not on {device}; engine 'graphed' has a setting of its own")
    if config.compile and not any(map(shutil.which, (os.environ.get("CXX", ""), "g++", "clang++"))):
        raise ValueError("compile = true needs a C++ compiler, and there is no g++ or clang++")
    precision = config.precision
    if precision == "auto":
        precision = frozen["precision"] if frozen else ("bf16" if device.type == "cuda" else "float32")
    engine = config.engine_module.name
    return complete(msgspec.to_builtins(structs.replace(config, device=str(device), precision=precision, engine=engine)))


def resolve_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps", "xpu"):
            raise RuntimeError("swamp trains on cpu, cuda, mps and xpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device = {name!r} is not there: {str(error).splitlines()[0]}") from None
    return device


def deciding_settings(config: Config) -> TomlTable:
    """What decides the numbers of a run, by dotted name."""
    plain: TomlTable = msgspec.to_builtins(config)
    plain["method"] = config.method_module.name
    kept = {key: value for key, value in plain.items() if key not in OPERATIONAL}
    ignored = {f"tasks.{config.task}.{name}" for name in getattr(module_of("task", config.task), "operational", ())}
    return {name: value for name, value in _flat(kept, "") if name not in ignored}


def _flat(value: TomlTable, prefix: str) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield prefix + key, item


def config_hash(config: Config) -> str:
    return hashlib.sha256(canonical(deciding_settings(config))).hexdigest()[:16]


# -- settings as text -------------------------------------------------------------------------------------------------------------


class SettingInfo(NamedTuple):
    """A setting of the typed configuration."""

    name: str  # dotted
    kind: Any
    default: Any
    description: str


def all_settings(kind: Any = Config, prefix: str = "") -> Iterator[SettingInfo]:
    """Every setting there is, those of all tasks, methods and engines included."""
    for field in structs.fields(kind):
        name = f"{prefix}{field.name}"
        if field.name in SELECTORS.values() and kind is Config:
            for key, module in selectable()[field.name].items():
                yield from all_settings(module.Config, f"{name}.{key}.")
        elif isinstance(field.type, type) and issubclass(field.type, Struct):
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            for inner in all_settings(field.type, f"{name}."):
                yield inner._replace(default=getattr(default, inner.name.rpartition(".")[2]))
        else:
            yield SettingInfo(name, field.type, field.default, description(field.type))


def parse_setting(name: str, text: str) -> tuple[str, Any]:
    """A setting as the command line gives it. The type of the setting decides how the text is read."""
    if name == "recipe":
        raise ValueError(f"a recipe is named without --recipe: swamp run {text}".rstrip())
    settings = {setting.name: setting for setting in all_settings()}
    for candidate in (SHORT_NAMES.get(name, name), name.replace("-", "_")):
        if candidate in settings:
            return candidate, parse_value(bare(settings[candidate].kind), text)
    ending = " or ".join(repr(setting) for setting in settings if setting.endswith(f".{name}"))  # its table was forgotten
    guess = f"did you mean {ending}?" if ending else nearest(name, settings)
    raise ValueError(f"unknown setting --{name}; {guess}".rstrip("; ") + " (all of them: swamp recipes digits)")


def to_toml(config: Config, recipe: TomlTable | None = None) -> str:
    """The configuration as a complete recipe, each setting with its description; with the `recipe` that it comes from, also the tables of
    all that could be selected, as that recipe or else the default has them."""
    everything = recipe is not None
    given = dict(_settings_of(recipe or {})) | dict(_settings_of(msgspec.to_builtins(config)))
    lines, table = [], ""
    for setting in all_settings():
        if setting.name not in given and not everything:
            continue
        value = given.get(setting.name, setting.default)
        head, _, name = setting.name.rpartition(".")
        if head != table:
            lines += ["", f"[{head}]"]
            table = head
        lines.append(f"{name} = {toml_text(value)}  # {setting.description}")
    return "\n".join(lines).lstrip() + "\n"


def _settings_of(plain: TomlTable) -> Iterator[tuple[str, Any]]:
    for setting in all_settings():
        place: Any = plain
        for part in setting.name.split("."):
            place = place.get(part, msgspec.UNSET) if isinstance(place, dict) else msgspec.UNSET
        if place is not msgspec.UNSET:
            yield setting.name, place
