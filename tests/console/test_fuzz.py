"""Calls of the REST API and of its pages with the generator that fuzzes the gateway: no answer is our own fault.

An input is one call: a line ``METHOD /path?query``, then the JSON body or, of a page, the form.
"""

import json
import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import pytest
from django.db import transaction
from django.test import Client

from console.accounts.models import User
from console.accounts.rights import system_actor
from console.api.schema import document
from console.catalog import registration
from console.jobs import query
from console.outbox import services as outbox
from tests import depth
from tests.console.test_api_refusals import bodies, program
from tests.console.test_api_rights import operations
from tests.console.test_jobs import FILTERS, make
from verification.fuzz import harness

__all__ = ["program"]
RUNS = depth.at(short=1_500, full=20_000)
SEED = 20_261_123
FORM = "application/x-www-form-urlencoded"
VALUES: dict[str, Any] = {"string": "digits", "integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}
PAGES = (
    b"GET /jobs?q=state:failed+created:%3C2h&before=1.5_x",
    b"GET /audit?q=actor:admin+at:%3C2h&before=9&act=keys.manage",
    b"POST /models/digits/default\nversion=1",
    b"POST /models/digits/label\nlabel=stable&version=2",
    b"POST /models/digits/replicas\nreplicas=2",
    b"POST /models/digits/settings\nreplicas=1&timeout_s=1.5&max_queue=9",
    b"POST /models/digits/pause\npaused=1&reason=why",
    b"POST /live/release\ngpu=GPU-1&reason=why",
    b"POST /keys/new\nname=k&rate=1&per_s=1&quota=1&quota_window_s=3600&days=9&scopes=jobs:read&networks=10.0.0.0/8",
)
TOKENS = tuple(
    word.encode()
    for word in (
        *(f"{name}:" for name in query.QUALIFIERS),
        "%00",
        "\\u0000",
        "\\ud800",
        "999999d",
        "<2h",
        ",a" * 12,
        "m " * 30,
        "[" * 40,
        "]" * 40,
        "nan",
        "Infinity",
        "null",
        "true",
        "%2B",
        "&",
        "=",
        "%20",
        ":",
    )
)
_SERVED = re.compile(rb"(GET|POST|PUT|PATCH) /[^\s]*\Z")


def seeds() -> Iterator[bytes]:
    """One call of each operation with everything it takes, and calls of pages."""
    taken = {(method, path): schema for method, path, schema in bodies()}
    for method, path in operations():
        if "/dead-letters" in path or path.endswith("/versions"):
            continue  # asks NATS; takes an archive
        url, words = path, []
        for parameter in document()["paths"][path][method].get("parameters", ()):
            if parameter["in"] == "path":
                url = url.replace(f"{{{parameter['name']}}}", "digits")
            else:
                words.append(f"{parameter['name']}={VALUES[parameter['schema']['type']]}")
        schema = taken.get((method, path), {"properties": {}})
        body = {name: VALUES[field.get("type", "object")] for name, field in schema["properties"].items()}
        for query_words in words or [""]:
            text = f"{method.upper()} {url}?{query_words}\n{json.dumps(body) if body else ''}"
            yield text.encode()
    for text in FILTERS:
        yield f"GET /api/jobs?q={quote(text)}".encode()
    yield from PAGES


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_no_call_with_odd_numbers_filters_and_bodies_is_our_own_fault(
    program: Client, cast: dict[str, User], base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_REPORT_WITHIN_S", 0.0)
    registration.register(system_actor("tests"), "digits", str(base))
    for number in range(1, 4):
        make(number, state="failed" if number % 2 else "succeeded")
    browser = Client(raise_request_exception=False)
    browser.force_login(cast["admin"])
    program.raise_request_exception = False

    def one(data: bytes) -> Hashable:
        head, _, body = data.partition(b"\n")
        if not _SERVED.match(head):
            return None  # the server itself refuses it
        method, _, url = head.partition(b" ")
        path, _, asked = url.partition(b"?")
        is_program = path.startswith(b"/api/")
        with transaction.atomic():
            answer: Any = (program if is_program else browser).generic(
                method.decode(),
                quote(unquote_to_bytes(path)) or "/",
                body,
                content_type="application/json" if is_program else FORM,
                query_string=asked.decode("latin-1"),
            )
            transaction.set_rollback(True)
        said, whole = answer.content[:300], answer.content  # a page says its reason below its head
        assert answer.status_code < 500 or b"NATS" in whole or b"worker" in whole, (answer.status_code, said)
        return answer.status_code, path[:12], re.sub(rb"[^a-z ]+", b"", said)[:80]

    chosen = harness.Target("console", tuple(seeds()), one, TOKENS, 1)
    report = harness.fuzz(chosen, runs=RUNS, seed=SEED, keep=tmp_path)
    assert not report.errors, str(report)
    assert report.runs == RUNS
    assert report.outcomes > 50, str(report)
