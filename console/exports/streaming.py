"""Rows as CSV or JSON lines, sent as they are read: a million of them take no more memory than one batch."""

import csv
import io
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from channels.db import database_sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

Row = Mapping[str, Any]
Batches = Iterator[Sequence[Row]]
TYPES: Final = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take a cell for a formula (OWASP, CSV injection)."""


def answer(
    request: HttpRequest, name: str, kind: str, columns: Sequence[str], batches: Batches
) -> StreamingHttpResponse:
    """The download. kind: of :data:`TYPES`. batches: read one at a time, while the caller takes them."""
    parts = _csv(columns, batches) if kind == "csv" else _lines(columns, batches)
    # Under ASGI an iterator that blocks would be read whole before the first byte is sent.
    content = _in_turn(parts) if isinstance(request, ASGIRequest) else parts
    response = StreamingHttpResponse(content, content_type=TYPES[kind])
    stamp = timezone.now().strftime("%Y%m%dT%H%MZ")
    response["Content-Disposition"] = f'attachment; filename="signalbox-{name}-{stamp}.{kind}"'
    return response


async def _in_turn(parts: Iterator[str]) -> AsyncIterator[str]:
    read = database_sync_to_async(lambda: next(parts, None))
    while (part := await read()) is not None:
        yield part


def _csv(columns: Sequence[str], batches: Batches) -> Iterator[str]:
    yield _written([columns])
    for rows in batches:
        yield _written([[_cell(row.get(column)) for column in columns] for row in rows])


def _written(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _lines(columns: Sequence[str], batches: Batches) -> Iterator[str]:
    for rows in batches:
        yield "".join(
            json.dumps({column: row.get(column) for column in columns}, default=_text, ensure_ascii=False) + "\n"
            for row in rows
        )


def _cell(value: Any) -> str:
    """A value as a cell, which no spreadsheet takes for a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else _text(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
