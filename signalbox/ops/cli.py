"""The ``signalbox`` command. Every subcommand explains itself: ``signalbox COMMAND --help``.

Each subcommand is a module of its own that is imported when it is asked for: a base install has httpx and numpy alone,
and images lack what others need.
"""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from signalbox import __version__
from signalbox.program.errors import Misconfigured, SignalboxError

_EXIT_REFUSED: Final = 2
_EXIT_INTERRUPTED: Final = 130
_EXIT_PIPE: Final = 141
"""As a shell says of a program that SIGPIPE ended."""
_COMPLETING: Final = "_ARGCOMPLETE"
"""The shell sets it where it asks how a line may go on, which is in ``COMP_LINE``."""
_PROGRAMS: Final = {
    "predict": ("calls.predict", "Run a model and print its answer."),
    "submit": ("calls.submit", "Submit a job, or many, to be run while you do something else."),
    "jobs": ("calls.jobs", "List, show, cancel, delete, retry and change your jobs."),
    "events": ("calls.events", "Follow a job: print each change of it until it has ended."),
    "result": ("calls.result", "Print or save a job's result, as soon as it is there."),
    "login": ("login", "Keep the address and key of a front, or of a console, in a profile."),
    "models": ("catalog.main", "Operators: list, push, import, pin, label, roll back and delete models."),
    "queues": ("queues.main", "Operators: make, list, purge, redrive and delete queues."),
    "completion": ("completion", "Print what makes your shell complete these commands."),
    "up": ("up.main", "Start everything on this machine; Ctrl-C stops it."),
    "host": ("host.main", "Keep workers on this machine's devices, as many as are wanted."),
    "demo": ("demo", "Send a stream of real digits, so that the board moves."),
    "doctor": ("doctor.main", "Name every weak setting of a deployment."),
    "topology": ("nats.topology", "Create or check the streams and buckets on NATS."),
    "backup": ("nats.backup", "Save what NATS keeps into a folder, while everything runs."),
    "restore": ("nats.restore", "Put a backup into a NATS that has none of our streams."),
    "nats-users": ("nats.users", "Print the accounts block of a nats-server configuration; make keys of hosts."),
    "tyk-apps": ("tykapps", "Write Tyk's API definitions with the plugins' secret."),
    "dead": ("nats.dead", "Look at jobs that were given up; run them again or discard them."),
}
"""Module of each subcommand, which brings its options (``add_arguments``) and acts (``run``), and what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit status: 0 done, 1 it is not as it should be, 2 refused, 130 interrupted."""
    given = sys.argv[1:] if argv is None else argv
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))  # None where a caller has closed it
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        if _COMPLETING in os.environ:
            return _complete()
        arguments = parser_of(_command(given)).parse_args(given)
        act: Callable[[argparse.Namespace], int] = arguments.act
        status = act(arguments)
        sys.stdout.flush()
    except SignalboxError as error:
        print(f"signalbox: {error.public_message}", file=sys.stderr)
        return _EXIT_REFUSED
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except OSError as error:  # what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # who reads our output, `head` say, has read enough
            return _EXIT_PIPE
        if error.errno != errno.ENOSPC:
            raise
        print(f"signalbox: the output cannot be written: {error.strerror}.", file=sys.stderr)
        return _EXIT_REFUSED
    return status


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser, with the options of one subcommand; of the others it has the names."""
    parser = _Parser(
        prog="signalbox",
        description="Durable TensorFlow inference behind Tyk: one job queue, one holder per GPU.",
        epilog=(
            "Exit status: 0 done, 1 it is not as it should be or the job did not succeed, 2 refused or misused, 130 "
            "interrupted. Programs of their own: python -m gateway_plugin, python -m workers, python -m console."
        ),
    )
    parser.add_argument("--version", action="version", version=f"signalbox {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (module, text) in _PROGRAMS.items():
        _add_program(commands, name, module, text, is_asked=name == command)
    return parser


def _command(argv: Sequence[str]) -> str:
    return next((word for word in argv if not word.startswith("-")), "")


def _add_program(commands: Any, name: str, module: str, text: str, *, is_asked: bool) -> None:
    parser = commands.add_parser(name, help=text, description=text)
    if not is_asked:
        return
    try:
        program = importlib.import_module(f"signalbox.ops.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "signalbox":
            raise
        raise Misconfigured(
            f"`signalbox {name}` needs the Python package {error.name}, which this installation has not. "
            "Install signalbox with the extra that has it: pip install 'signalbox[up]' has all of them."
        ) from error
    program.add_arguments(parser)
    parser.set_defaults(act=program.run)


def _complete() -> int:
    """Answer the shell, which ends the process."""
    import argcomplete  # only where the shell was told to ask us, by what argcomplete printed

    words = os.environ.get("COMP_LINE", "").split()[1:]
    argcomplete.autocomplete(parser_of(_command(words)))
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser, and those of its acts, whose help is laid out by :class:`_Formatter`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, **options})


class _Formatter(argparse.HelpFormatter):
    """Fills paragraphs, and leaves lines that begin with two spaces as they are: examples, to be pasted."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = [
            part if part.startswith("  ") else super(_Formatter, self)._fill_text(part, width, indent)
            for part in text.split("\n\n")
        ]
        return "\n\n".join(parts)
