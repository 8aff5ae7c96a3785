"""Writes a trial's call for a shell and for Python, without a key. Pure."""

import json
import shlex
from typing import Any, Final

from console.trials import front

_MOST_LETTERS: Final = 4000
"""Of a body that a command line holds; a larger one is a file."""


def curl(url: str, model: str, version: int, body: dict[str, Any]) -> str:
    """For a shell. The key is in ``SIGNALBOX_KEY``."""
    text = json.dumps(body, separators=(",", ":"))
    data = shlex.quote(text) if len(text) <= _MOST_LETTERS else "@body.json"
    address = shlex.quote(url + front.path(model, version))
    return f'curl -H "Authorization: Bearer $SIGNALBOX_KEY" {address} -d {data}'


def python(url: str, model: str, version: int, body: dict[str, Any]) -> str:
    """With ``signalbox.client``. The key is in ``SIGNALBOX_KEY``."""
    inputs = repr(body["inputs"])
    if len(inputs) > _MOST_LETTERS:
        inputs = 'json.load(open("inputs.json"))'
    return (
        f"import {'json, ' if inputs.startswith('json.') else ''}os\n\n"
        "from signalbox.client import Client\n\n"
        f'with Client({url!r}, os.environ["SIGNALBOX_KEY"]) as client:\n'
        f"    inputs = {inputs}\n"
        f"    print(client.predict({model!r}, inputs, version={version}, signature={body['signature_name']!r}))"
    )
