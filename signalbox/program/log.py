"""JSON lines on standard error: an event name and fields, never sentences with values inside.

``log.info("lease.acquired", gpu=..., token=...)``. INFO is a change of state, WARNING is something an operator may have
to look at, ERROR something an operator must look at. Payloads and keys are never logged; what slips into a line all
the same is taken out by :mod:`signalbox.program.redaction` as it is written.

Warnings and errors that are equal in all their fields are counted instead of repeated (:class:`EqualLines`).
"""

import atexit
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, TextIO, cast

import msgspec
import structlog

from signalbox.program import metrics
from signalbox.program.redaction import redact, redact_fields

UNFORESEEN: Final = metrics.counter(
    "unforeseen_errors", "Unexpected errors, caught at the edge of a task or request.", "event"
)
_LEVELS: Final = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
WINDOW_S: Final = 60.0
"""How long lines that equal one that was written are counted instead of written."""
_MOST_KINDS: Final = 256
"""Different lines that are remembered at once; the oldest is let go, and its count written."""
is_debug = False
"""Whether :func:`debug` writes anything: ask before building what it would say. A flag, since every job asks often."""
_encode: Final = msgspec.json.Encoder(enc_hook=repr).encode


class _Stderr:
    """Standard error as it is now. A line is one write, so two processes cannot tear it.

    A line that cannot be written is lost and breaks nothing: work goes on with a full disk and without a reader.
    """

    def write(self, line: str) -> int:
        """Write it, if that can be done."""
        try:
            return sys.stderr.write(line)
        except OSError as error:
            self._give_up(error)
            return 0

    def flush(self) -> None:
        """Flush standard error where it is open."""
        try:
            sys.stderr.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):  # no reader is left: else the interpreter fails at its end
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stderr.fileno())
            os.close(nowhere)


_STDERR: Final = cast("TextIO", _Stderr())


def configure(level: str = "INFO", *, program: str = "") -> None:
    """Log JSON lines from ``level`` up; every line names ``program``. Foreign loggers join from WARNING up."""
    equal = EqualLines()
    _render_as_json(level, equal)
    atexit.register(equal.end)
    if program:
        structlog.contextvars.bind_contextvars(program=program)
    root = logging.getLogger()
    root.handlers = [_Bridge()]
    root.setLevel(max(_LEVELS[level], logging.WARNING))
    sys.excepthook = _crashed
    threading.excepthook = _thread_crashed


def _render_as_json(level: str, equal: "EqualLines | None" = None) -> None:
    global is_debug  # noqa: PLW0603  one level a process
    is_debug = level == "DEBUG"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _stamp,
            _explain,
            *([equal] if equal else []),
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: structlog.WriteLogger(_STDERR),
        cache_logger_on_first_use=False,
    )


def get_logger(**fields: Any) -> Any:
    """A logger whose lines all carry ``fields``."""
    return structlog.get_logger(**fields)


def debug(event: str, **fields: Any) -> None:
    """Log a line for debugging; off by default."""
    structlog.get_logger().debug(event, **fields)


def info(event: str, **fields: Any) -> None:
    """Log a change of state."""
    structlog.get_logger().info(event, **fields)


def warning(event: str, **fields: Any) -> None:
    """Log something that an operator may have to look at."""
    structlog.get_logger().warning(event, **fields)


def error(event: str, **fields: Any) -> None:
    """Log something that an operator must look at."""
    structlog.get_logger().error(event, **fields)


def exception(event: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """:func:`error` with ``error`` or the exception being handled. It is unforeseen, and therefore counted."""
    UNFORESEEN.labels(event).inc()
    structlog.get_logger().error(event, exc_info=error or True, **fields)


class _Bridge(logging.Handler):
    """Lines of libraries that use the standard logging module."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["exc_info"] = record.exc_info[1]
        structlog.get_logger().log(record.levelno, "library.message", **fields)


class _Kind:
    """Lines that are equal. count: of those that were not written since the last that was, ``line``."""

    __slots__ = ("count", "line", "since")

    def __init__(self, since: float, line: dict[str, Any]) -> None:
        self.since = since
        self.line = line
        self.count = 0


class EqualLines:
    """Writes the first of equal warnings or errors, and counts what follows within :data:`WINDOW_S`.

    Equal are lines whose fields all are, time aside: those of two jobs never are. The count, ``repeated``, stands in
    the next equal line after the window, or in a line of its own, which the next warning or error or the end of the
    program brings. There is no thread for it: some of our programs may not have one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}
        self._lock = threading.Lock()

    def __call__(self, _: Any, __: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """A step of structlog's: the line to write. Raises ``DropEvent`` for one that was counted."""
        if _LEVELS[str(fields["level"]).upper()] < logging.WARNING:
            return fields
        with self._lock:
            line, over = self._taken(dict(fields))
        for kind in over:
            _say_repeated(kind)
        if line is None:
            raise structlog.DropEvent
        return line

    def end(self) -> None:
        """Write every count that has not been written. Idempotent."""
        with self._lock:
            left = list(self._kinds.values())
            self._kinds.clear()
        for kind in left:
            _say_repeated(kind)

    def _taken(self, line: dict[str, Any]) -> tuple[dict[str, Any] | None, list[_Kind]]:
        """What to write of this line, and the kinds whose window has ended."""
        now = self._clock()
        name = repr(sorted((key, value) for key, value in line.items() if key != "at"))
        kind = self._kinds.get(name)
        if kind is not None and now < kind.since + WINDOW_S:
            kind.count += 1
            kind.line["at"] = line["at"]
            return None, []
        over = []
        for other, found in list(self._kinds.items()):  # oldest first
            is_over = now >= found.since + WINDOW_S
            if not is_over and len(self._kinds) < _MOST_KINDS:
                break
            del self._kinds[other]
            if other != name:
                over.append(found)
        self._kinds[name] = _Kind(now, line)
        return (line | {"repeated": kind.count} if kind and kind.count else line), over


def _say_repeated(kind: _Kind) -> None:
    if kind.count:
        _STDERR.write(_render(None, "", kind.line | {"repeated": kind.count}) + "\n")
        _STDERR.flush()


def _stamp(_: Any, __: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put the time first in the line, so that sorted lines of several programs stand in order of time."""
    return {"at": datetime.now(UTC).isoformat(timespec="microseconds"), **fields}


def _explain(_: Any, __: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace ``exc_info`` by the exception's type, text and trace."""
    cause = fields.pop("exc_info", None)
    if cause is True:
        cause = sys.exc_info()[1]
    if isinstance(cause, BaseException):
        fields["error"] = f"{type(cause).__name__}: {cause}"
        fields["traceback"] = "".join(traceback.format_exception(cause))
    return fields


def _render(_: Any, __: str, fields: MutableMapping[str, Any]) -> str:
    return redact(_encode(redact_fields(fields)).decode())


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log an uncaught exception as a line like any other: Python's own traces are not redacted."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        structlog.get_logger().error("program.crashed", exc_info=error)


def _thread_crashed(args: "threading.ExceptHookArgs") -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        structlog.get_logger().error("thread.crashed", exc_info=args.exc_value)


# From the first line on: structlog's own renderer shows the local variables of a failure, keys and payloads among them.
_render_as_json("INFO")
