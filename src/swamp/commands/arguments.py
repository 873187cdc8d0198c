"""Arguments and options that several commands have in common, and how their texts are parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter, Token

from swamp.commands import completion
from swamp.core.errors import brief

if TYPE_CHECKING:
    from swamp.tasks.task import Task

MOST_DIGITS = 18  # of a whole number on the command line: what 64 bits can hold


def whole_number(_: object, tokens: Sequence[Token]) -> int:
    """Return the number of an option. The parser of options would round 1.5 in silence."""
    text = tokens[0].value.strip()
    if not text.removeprefix("-").isdecimal() or len(text) > MOST_DIGITS:
        raise ValueError(f"{brief(text)[1:-1]}: expected a whole number")
    return int(text)


WholeNumber = Annotated[int, Parameter(converter=whole_number)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]  # an option without a value and without its --no- form
RecipeArgument = Annotated[str, Parameter(allow_leading_hyphen=True, name="RECIPE", negative=(), completer=completion.recipe_or_setting)]
SettingArgument = Annotated[
    str, Parameter(allow_leading_hyphen=True, name="SETTINGS", help="Settings as --name value.", completer=completion.setting)
]
TaskOption = Annotated[str | None, Parameter(help="module:function that makes the task of a run with a model and data of your own.")]
TrustOption = Annotated[Flag, Parameter(help="Run the code that the run directory names, such as the function that makes its task.")]
Directory = Annotated[Path, Parameter(help="A run directory, or a group of them (DIR/seed-0, DIR/seed-1, …).")]


@Parameter(name="*")  # Its fields are options like any others.
@dataclass(frozen=True)
class DisplayOptions:
    """How the progress of a command is shown."""

    plain: Annotated[Flag, Parameter(help="Print lines without bars or colours, as in a log, also on a terminal.")] = False
    quiet: Annotated[Flag, Parameter(help="Print no progress and no tables, only remarks and errors.")] = False

    def check(self) -> None:
        """Refuse options that contradict each other, before anything is trained or written."""
        if self.plain and self.quiet:
            raise ValueError("give either --plain or --quiet")


@Parameter(name="*")
@dataclass(frozen=True)
class ProgressOptions(DisplayOptions):
    """How the progress of a command that trains is shown and logged."""

    tracker: Annotated[
        str | None,
        Parameter(
            help="Also log with this tracker, or with several separated by commas (docs/following.md). If one fails, the run continues."
        ),
    ] = None

    @property
    def trackers(self) -> tuple[str, ...]:
        """The names of the trackers; an unknown name is a ValueError."""
        from swamp.trackers import parse_trackers

        return parse_trackers(self.tracker) if self.tracker is not None else ()

    def check(self) -> None:
        super().check()
        _ = self.trackers


DISPLAY_OPTIONS = DisplayOptions()  # the defaults
PROGRESS_OPTIONS = ProgressOptions()


def split_arguments(arguments: Sequence[str], command: Callable[..., None]) -> tuple[list[str], dict[str, Any]]:
    """Return the arguments of a command that stand alone, and the settings given as --name value or --name=value."""
    from swamp.runs.setting_list import parse_setting

    known = App(default_command=command).assemble_argument_collection()
    options = [name.removeprefix("--") for option in known for name in option.names if name.startswith("--")]
    alone, settings, rest = [], {}, iter(arguments)
    for argument in rest:
        if not argument.startswith("--"):
            alone.append(argument)
            continue
        name, equals, text = argument.removeprefix("--").partition("=")
        if not equals:
            value = next(rest, None)
            if value is None:
                parse_setting(name, "", options)  # An unknown name is the likelier mistake, and is reported first.
                raise ValueError(f"--{name} needs a value")
            text = value
        key, parsed = parse_setting(name, text, options)
        settings[key] = parsed
    return alone, settings


def recipe_and_settings(arguments: Sequence[str], command: Callable[..., None]) -> tuple[str, dict[str, Any]]:
    """Return the recipe, which is the default one if none is named, and the settings."""
    from swamp.runs.recipes import DEFAULT_RECIPE

    recipe, settings = named_recipe(arguments, command)
    return recipe or DEFAULT_RECIPE, settings


def named_recipe(arguments: Sequence[str], command: Callable[..., None]) -> tuple[str | None, dict[str, Any]]:
    """Return the recipe, or None if none is named, and the settings."""
    alone, settings = split_arguments(arguments, command)
    if len(alone) > 1:
        raise ValueError(f"one recipe at a time, not {', '.join(alone)}; settings are written --name value")
    return alone[0] if alone else None, settings


def made_task(maker: str | None) -> Task | None:
    """Return the task that module:function makes, or None if --task names no function."""
    from swamp.tasks import custom

    return custom.build(custom.Config(factory=maker)) if maker else None


def parse_numbers(option: str, text: str, least: int = 0, different: bool = False) -> list[int]:
    """Return the whole numbers in the text of an option.

    >>> parse_numbers("--seeds", "0,2, 1")
    [0, 2, 1]
    """
    parts = [part.strip() for part in text.split(",")]
    numbers = [int(part) for part in parts if part.isdecimal() and len(part) <= MOST_DIGITS]
    if len(numbers) < len(parts) or min(numbers) < least or (different and len(set(numbers)) < len(numbers)):
        kind = ("different " if different else "") + ("positive " if least == 1 else "")
        raise ValueError(f"{option} {brief(text)[1:-1]}: expected {kind}whole numbers with commas between, such as 1,2,4")
    return numbers


def parse_part(text: str) -> tuple[int, int]:
    """Return which part of how many a text names.

    >>> parse_part("3/8")
    (3, 8)
    """
    first, slash, of = text.partition("/")
    if not (slash and first.isdecimal() and of.isdecimal() and len(first) + len(of) <= MOST_DIGITS and int(first) < int(of)):
        raise ValueError(f"--part {text}: expected a number and how many parts there are, from 0/8 to 7/8")
    return int(first), int(of)
