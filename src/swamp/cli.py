"""The command line.

This module imports nothing that takes time, so that from the first moment on Ctrl-C ends the command in silence.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading

TYPE_CHECKING = False  # type checkers take it for true; `typing` would take its time to be imported
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import NoReturn

    from cyclopts import App


# When a process ends, Python looks for garbage among all that was imported. With torch that takes a third of a second, and frees nothing
# that the end of the process does not free.
atexit.register(gc.freeze)

GROUPS = ("Train", "Look at results", "Use a network", "Prepare")  # of commands, as the help lists them


def make_app() -> App:
    """Return the command line with all commands.

    A module of `commands` that has a function of its own name is a command, and its `group` says where the help lists it. A module with
    `lazy = True` makes its function `command` on first use, because its parameters take seconds to find.
    """
    import importlib
    import inspect
    import pkgutil

    from cyclopts import App, Group

    from swamp import commands
    from swamp.version import __version__

    app = App(
        name="swamp",
        version=__version__,
        help="Find highly sparse neural networks.\n\n"
        "A run trains, averages, prunes and rewinds as a recipe says, and writes its results to a directory. Begin with: swamp run digits",
        group_commands=Group("Other", sort_key=len(GROUPS)),
    )
    groups = {name: Group(name, sort_key=place) for place, name in enumerate(GROUPS)}
    for info in pkgutil.iter_modules(commands.__path__):
        module = importlib.import_module(f"swamp.commands.{info.name}")
        command = getattr(module, info.name, None)
        if not command:
            continue
        usage, group = getattr(module, "usage", None), groups[module.group]
        if getattr(module, "lazy", False):
            app.command(f"{module.__name__}:command", name=info.name, help=inspect.getdoc(command), usage=usage, group=group)
        else:
            app.command(command, usage=usage, group=group)
    app.register_install_completion_command(
        help="Install completion of commands, options and names for the shell in use, or for --shell NAME."
    )
    return app


def open_streams() -> None:
    """Make standard input, output and error usable, whatever the process was started with.

    Where one of them is closed, the next file that is opened would take its number, and what libraries print would go into that file. What
    the encoding of a stream lacks, such as ± in ASCII, is written as \\xb1.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # It gets the lowest number that is free, which is this one.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def fail(message: str, status: int, details: str = "") -> NoReturn:
    """Print one sentence, and lines of details below it, and end the process."""
    from swamp.drawing.tables import visible

    print(f"swamp: {visible(message)}", *map(visible, details.splitlines()), sep="\n", file=sys.stderr)
    raise SystemExit(status)


def reader_has_left() -> bool:
    """Whether the program that reads our output has ended. If so, nothing more is written to it, not even when this process ends."""
    import select

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
    import dis

    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace is None:
        return False
    frame = trace.tb_frame
    in_swamp = str(frame.f_globals.get("__name__")).startswith("swamp.")
    return in_swamp and frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def lacks_memory(error: Exception) -> bool:
    """Return whether an error says that there was too little memory: for an object, a tensor, a library or a thread."""
    clues = ("can't allocate memory", "out of memory", "failed to map segment", "can't start new thread", "bad_alloc")
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError | ImportError) and any(clue in str(error) for clue in clues))


class heeding_interrupts:  # noqa: N801 - it is used as a function; contextlib would have to be imported first
    """Raises KeyboardInterrupt at Ctrl-C, and ends the process at once while a module is being imported: some libraries catch the exception
    there, others abort. Nothing is lost by that, because every file is written as a whole. A signal that the parent ignores stays ignored.
    """

    def __enter__(self) -> None:
        self.before = signal.getsignal(signal.SIGINT)
        if self.before is signal.default_int_handler and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self.interrupt)

    def __exit__(self, *error: object) -> None:
        if signal.getsignal(signal.SIGINT) == self.interrupt:
            signal.signal(signal.SIGINT, self.before)

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        while frame and frame.f_code is not main.__code__:
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                os._exit(130)
            frame = frame.f_back
        raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. A mistake of the user gives one sentence and status 2, a failure on the way one sentence and status 1."""
    try:
        with heeding_interrupts():
            open_streams()
            run_command(arguments)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def run_command(arguments: Sequence[str] | None) -> None:
    from cyclopts import CycloptsError

    from swamp.tasks.own.task_function import command_imports

    if int(os.environ.get("LOCAL_RANK", 0)) or int(os.environ.get("RANK", 0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Of the processes that torchrun starts, only one prints.
    try:
        with command_imports():
            make_app()(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # What prints the help ends with status 1 when nobody reads it.
            raise SystemExit(141) from None
        raise
    except CycloptsError as error:
        fail(" ".join(str(error).split()), 2)
    except ValueError as error:
        if not is_mistake_of_user(error):
            raise
        fail(str(error), getattr(error, "exit_status", 2), getattr(error, "user_traceback", ""))
    except OSError as error:
        if isinstance(error, BrokenPipeError) and reader_has_left():
            raise SystemExit(141) from None  # The reader, such as head, has seen enough. SIGPIPE gives this status.
        from swamp.store.files import explain_os_error

        fail(explain_os_error(error), 1)
    except (RuntimeError, MemoryError, ImportError) as error:
        if error.__class__.__module__.startswith("swamp."):
            fail(str(error), 1)
        if not lacks_memory(error):
            raise
        fail(f"there is not enough memory ({str(error).partition(chr(10))[0] or 'for an object'}); what was stored is sound", 1)
