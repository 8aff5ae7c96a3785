"""JSON lines on standard error: an event name and fields, never sentences with values inside.

``log.info("lease.acquired", gpu=..., token=...)``. INFO is a change of state, WARNING is something somebody may have to
look at, ERROR something somebody must. Payloads and keys are never logged; what slips into a line all the same
is taken out by :mod:`signalbox.redaction` as it is written.
"""

import logging
import os
import sys
import threading
import traceback
from collections.abc import MutableMapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, TextIO, cast

import msgspec
import structlog

from signalbox import metrics
from signalbox.redaction import redact, redact_fields

UNFORESEEN: Final = metrics.counter(
    "unforeseen_errors", "Errors nobody foresaw, caught at the edge of a task or request.", "event"
)
_LEVELS: Final = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
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
        """Likewise."""
        try:
            sys.stderr.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if isinstance(
            error, BrokenPipeError
        ):  # nobody will read: else the interpreter fails at its end
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stderr.fileno())
            os.close(nowhere)


_STDERR: Final = cast("TextIO", _Stderr())


def configure(level: str = "INFO", *, program: str = "") -> None:
    """Log JSON lines from ``level`` up; every line names ``program``. Foreign loggers join from WARNING up."""
    _render_as_json(level)
    if program:
        structlog.contextvars.bind_contextvars(program=program)
    root = logging.getLogger()
    root.handlers = [_Bridge()]
    root.setLevel(max(_LEVELS[level], logging.WARNING))
    sys.excepthook = _crashed
    threading.excepthook = _thread_crashed


def _render_as_json(level: str) -> None:
    global is_debug  # noqa: PLW0603  one level a process
    is_debug = level == "DEBUG"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _stamp,
            _explain,
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
    """For whoever debugs; off by default."""
    structlog.get_logger().debug(event, **fields)


def info(event: str, **fields: Any) -> None:
    """A change of state."""
    structlog.get_logger().info(event, **fields)


def warning(event: str, **fields: Any) -> None:
    """Somebody may have to look."""
    structlog.get_logger().warning(event, **fields)


def error(event: str, **fields: Any) -> None:
    """Somebody must look."""
    structlog.get_logger().error(event, **fields)


def exception(event: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """:func:`error` with ``error`` or the exception being handled, which nobody foresaw: it is counted."""
    UNFORESEEN.labels(event).inc()
    structlog.get_logger().error(event, exc_info=error or True, **fields)


class _Bridge(logging.Handler):
    """Lines of libraries that use the standard logging module."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["exc_info"] = record.exc_info[1]
        structlog.get_logger().log(record.levelno, "library.message", **fields)


def _stamp(_: Any, __: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """First in the line, so that sorted lines of several programs stand in order of time."""
    return {"at": datetime.now(UTC).isoformat(timespec="microseconds"), **fields}


def _explain(_: Any, __: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace ``exc_info`` by the exception's type, text and trace."""
    cause = fields.pop("exc_info", None)
    if cause is True:
        cause = sys.exc_info()[1]
    if isinstance(cause, BaseException):
        fields["error"] = f"{type(cause).__name__}: {cause}"
        fields["trace"] = "".join(traceback.format_exception(cause))
    return fields


def _render(_: Any, __: str, fields: MutableMapping[str, Any]) -> str:
    return redact(_encode(redact_fields(fields)).decode())


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python would write as it ends, as a line like any other: bare traces are not redacted."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        structlog.get_logger().error("program.crashed", exc_info=error)


def _thread_crashed(args: "threading.ExceptHookArgs") -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        structlog.get_logger().error("thread.crashed", exc_info=args.exc_value)


# From the first line on: structlog's own renderer shows the local variables of a failure, keys and payloads among them.
_render_as_json("INFO")
