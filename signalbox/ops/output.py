"""What commands print: tables and JSON on standard output, progress on the terminal's standard error."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self, TextIO

from signalbox.program.words import bytes_of

_SHOWN_AFTER_S: Final = 1.0
_REDRAWN_S: Final = 0.2
_BAR: Final = 24


def emit_json(doc: Any) -> None:
    """Print one JSON document, for programs."""
    print(json.dumps(doc, indent=2))


def emit_line(doc: Any) -> None:
    """Print a JSON document as one line of several, for programs that read as they come."""
    print(json.dumps(doc, separators=(",", ":")), flush=True)


def emit_table(headings: Sequence[str], rows: Iterable[Sequence[object]], otherwise: str = "") -> None:
    """Print rows in columns below their headings. otherwise: what is said where there are none."""
    found = [[_cell(value) for value in row] for row in rows]
    if not found:
        print(otherwise or "none")
        return
    lines = [list(headings), *found]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def emit_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print what is known of one thing, a line each; without those that are empty."""
    shown = [(name, _cell(value)) for name, value in fields if value not in ("", None, [], {}, ())]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print(f"{name:{width}}  {value}")


def note(text: str) -> None:
    """Say something beside the output, for a person."""
    print(_harmless(text), file=sys.stderr, flush=True)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return _harmless(" ".join(str(value).split()))  # a line break would break the table


def _harmless(text: str) -> str:
    """Without control characters: a server's or a caller's text could have a terminal do as it says."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


class Progress:
    """A line on the terminal that is drawn anew, from the first second on; elsewhere nothing is drawn.

    total: how much there is of what :meth:`advance` counts; 0 where that is not known. is_bytes: it is bytes, else
    things. A thread of its own draws, so that it goes on while the work waits for an answer.
    """

    def __init__(self, what: str, total: int = 0, *, is_bytes: bool = False, to: TextIO | None = None) -> None:
        self._what, self._total, self._is_bytes = what, total, is_bytes
        self._to = to if to is not None else sys.stderr
        self._done, self._note = 0, ""
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._to.isatty():
            self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def advance(self, amount: int = 1) -> None:
        """Count what is done."""
        self._done += amount

    def say(self, text: str) -> None:
        """Show beside the figures what goes on."""
        self._note = text

    def line(self) -> str:
        """What is shown now."""
        elapsed_s = time.monotonic() - self._began
        parts = [self._what]
        if self._total:
            share = min(1.0, self._done / self._total)
            filled = int(share * _BAR)
            figure = bytes_of(self._done, self._total) if self._is_bytes else f"{self._done} of {self._total}"
            parts += [f"[{'#' * filled}{'.' * (_BAR - filled)}]", f"{share:4.0%}", figure]
        elif self._done:
            parts.append(str(self._done))
        parts += [f"{elapsed_s:.0f} s", *([self._note] if self._note else [])]
        return "  ".join(parts)

    def _draw(self) -> None:
        if self._over.wait(_SHOWN_AFTER_S):
            return
        with contextlib.suppress(OSError, ValueError):  # the terminal has gone
            while True:
                self._to.write(f"\r\x1b[2K{self.line()}")
                self._to.flush()
                if self._over.wait(_REDRAWN_S):
                    break
            self._to.write("\r\x1b[2K")
            self._to.flush()
