"""Writes a job's request as curl and as Python: with its input where that is small, and never with a key."""

import json
import shlex
from typing import Any, Final, NamedTuple

from django.conf import settings

from console.jobs.models import Job
from console.payloads.request import Request

MOST_BYTES: Final = 4096
"""Of an input that is written into a snippet."""
FILE: Final = "request.json"
KEY: Final = '-H "Authorization: Bearer $SIGNALBOX_KEY"'
"""The header of a call: the key is in the variable."""
_TYPE: Final = '-H "Content-Type: application/json"'


class Snippets(NamedTuple):
    """is_filled: whether the input is in them; else it is read from :data:`FILE`."""

    curl: str
    python: str
    is_filled: bool


def of_job(job: Job) -> Snippets:
    """Of a job's row, without its input: for those, too, who may not read it."""
    return of(Request.of(job))


def of(request: Request, inputs: Any = None) -> Snippets:
    """How to send it again. inputs: by name, None = unknown or large."""
    url = settings.CONSOLE.front_url.rstrip("/")
    body = json.dumps(request.body(inputs))
    is_filled = inputs is not None and len(body) <= MOST_BYTES
    head = f"curl -X POST {shlex.quote(url + '/v1/jobs')} \\\n  {KEY} \\\n  {_TYPE} \\\n"
    # A quoted word after << keeps the shell from looking into the text, which is one line of JSON.
    curl = head + (f"  -d @- <<'JSON'\n{body}\nJSON" if is_filled else f"  -d @{FILE}")
    given = f"json.loads({json.dumps(inputs)!r})" if is_filled else f'json.load(open("{FILE}"))["input"]'
    options = f"version={request.version}, "
    if request.signature:
        options += f"signature={request.signature!r}, "
    submit = f"job = client.submit({request.model!r}, inputs, {options}priority={request.priority!r})"
    return Snippets(curl, python(url, given, submit, "print(client.result(job))"), is_filled)


def python(url: str, inputs: str, *lines: str) -> str:
    """A program with ``signalbox.client``. inputs: what they are, as code; lines: what is done with them."""
    return (
        f"import {'json, ' if inputs.startswith('json.') else ''}os\n\n"
        "from signalbox.client import Client\n\n"
        f'with Client({url!r}, os.environ["SIGNALBOX_KEY"]) as client:\n'
        f"    inputs = {inputs}\n" + "\n".join(f"    {line}" for line in lines)
    )
