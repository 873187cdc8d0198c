"""The command line."""

from __future__ import annotations

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
from swamp.version import __version__

app = App(
    name="swamp",
    version=__version__,
    help="Find highly sparse neural networks.\n\n"
    "A run trains, averages, prunes and rewinds as a recipe says, and writes all it finds to a directory. Begin with: swamp run",
)

# A module of `commands` that has a function of its own name is a command. A lazy one has parameters that take seconds to find out, and
# makes its `command` when that is used.
for info in pkgutil.iter_modules(commands.__path__):
    module = importlib.import_module(f"swamp.commands.{info.name}")
    command = getattr(module, info.name, None)
    if command and getattr(module, "lazy", False):
        app.command(f"{module.__name__}:command", name=info.name, help=inspect.getdoc(command))
    elif command:
        app.command(command, usage=getattr(module, "usage", None))


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


def raised_by_swamp(error: BaseException) -> bool:
    """Whether swamp's own code raised the error, with a message for the user. Torch and others raise ValueError too."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or str(trace.tb_frame.f_globals.get("__name__", "")).startswith("swamp.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. A mistake of the user gives one sentence and status 2, a failure on the way one sentence and status 1."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # --task module:function is looked for in the working directory first, as python -m does.
    if int(os.environ.get("LOCAL_RANK", 0)) or int(os.environ.get("RANK", 0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Of the processes that torchrun starts, only one prints.
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        print(end="", flush=True)  # Unlike sys.stdout.flush, this also works without a stdout.
    except CycloptsError as error:
        fail(" ".join(str(error).split()), 2)
    except ValueError as error:
        if not raised_by_swamp(error):
            raise  # This is a defect, not a mistake of the user.
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
