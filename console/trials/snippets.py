"""Writes a trial's call for a shell and for Python, without a key. Pure."""

import json
import shlex
from typing import Any

from console.payloads import snippets
from console.payloads.snippets import FILE, KEY, MOST_BYTES
from console.trials import front


def curl(url: str, model: str, version: int, body: dict[str, Any]) -> str:
    """For a shell. A body that is large for a command line is in a file."""
    text = json.dumps(body, separators=(",", ":"))
    data = shlex.quote(text) if len(text) <= MOST_BYTES else f"@{FILE}"
    return f"curl {KEY} {shlex.quote(url + front.path(model, version))} -d {data}"


def python(url: str, model: str, version: int, body: dict[str, Any]) -> str:
    """With ``signalbox.client``."""
    inputs = repr(body["inputs"])
    if len(inputs) > MOST_BYTES:
        inputs = f'json.load(open("{FILE}"))["inputs"]'
    call = f"client.predict({model!r}, inputs, version={version}, signature={body['signature_name']!r})"
    return snippets.python(url, inputs, f"print({call})")
