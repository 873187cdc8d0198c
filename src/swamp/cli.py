"""The command line."""

from __future__ import annotations

import importlib
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

# A module of `commands` that has a function of its own name is a command.
for info in pkgutil.iter_modules(commands.__path__):
    module = importlib.import_module(f"swamp.commands.{info.name}")
    if command := getattr(module, info.name, None):
        app.command(command, usage=getattr(module, "usage", None))


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
