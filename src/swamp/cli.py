"""The command line."""

from __future__ import annotations

import dis
import importlib
import inspect
import os
import pkgutil
import select
import sys
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import App, CycloptsError

from swamp import commands
from swamp.tasks.task_function import command_imports
from swamp.version import __version__

app = App(
    name="swamp",
    version=__version__,
    help="Find highly sparse neural networks.\n\n"
    "A run trains, averages, prunes and rewinds as a recipe says, and writes all it finds to a directory. Begin with: swamp run",
)

# A module of `commands` that has a function of its own name is a command. A module with `lazy = True` makes its function `command` on
# first use, because its parameters take seconds to find.
for info in pkgutil.iter_modules(commands.__path__):
    module = importlib.import_module(f"swamp.commands.{info.name}")
    command, usage = getattr(module, info.name, None), getattr(module, "usage", None)
    if command and getattr(module, "lazy", False):
        app.command(f"{module.__name__}:command", name=info.name, help=inspect.getdoc(command), usage=usage)
    elif command:
        app.command(command, usage=usage)

RAISE = dis.opmap["RAISE_VARARGS"]  # the instruction of a `raise` statement


def fail(message: str, status: int) -> NoReturn:
    """Print one sentence and end the process."""
    print(f"swamp: {message}", file=sys.stderr)
    raise SystemExit(status)


def reader_has_left() -> bool:
    """Whether the program that reads our output has ended. If so, nothing more is written to it, not even when this process ends."""
    output, poll = 1, select.poll()
    poll.register(output, 0)
    left = any(event & select.POLLERR for _, event in poll.poll(0))
    if left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return left


def is_mistake_of_user(error: ValueError) -> bool:
    """Return whether a `raise` statement of swamp raised the error. Its message then is for the user.

    Anything else is a defect: an error of another package, or one that a builtin such as `int` or `max` raised in swamp's code.
    """
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace is None:
        return False
    frame = trace.tb_frame
    in_swamp = str(frame.f_globals.get("__name__")).startswith("swamp.")
    return in_swamp and frame.f_code.co_code[trace.tb_lasti] == RAISE


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. A mistake of the user gives one sentence and status 2, a failure on the way one sentence and status 1."""
    if int(os.environ.get("LOCAL_RANK", 0)) or int(os.environ.get("RANK", 0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Of the processes that torchrun starts, only one prints.
    try:
        with command_imports():
            app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        print(end="", flush=True)  # Unlike sys.stdout.flush, this also works without a stdout.
    except CycloptsError as error:
        fail(" ".join(str(error).split()), 2)
    except ValueError as error:
        if not is_mistake_of_user(error):
            raise
        fail(str(error), 2)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and reader_has_left():
            raise SystemExit(141) from None  # The reader, such as head, has seen enough. SIGPIPE gives this status.
        from swamp.store.files import explain_os_error

        fail(explain_os_error(error), 1)
    except RuntimeError as error:
        if not error.__class__.__module__.startswith("swamp."):
            raise
        fail(str(error), 1)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
