"""A service.json of PAI EAS that describes a queue, as the console's REST API takes it. Pure, but for the file."""

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from signalbox.program.errors import InvalidRequest, Misconfigured

MOST_FILE_BYTES: Final = 64 * 1024
ROLE: Final = "Queue"
_METADATA: Final = ("name", "role", "group", "instance", "resource")
_SIDE: Final = ("max_length", "max_payload_size_kb", "auto_evict")
_QUEUE: Final = (
    *("resource", "cpu", "memory", "min_replica", "max_delivery", "max_idle", "dead_message_policy", "source", "sink"),
)
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "": ("metadata", "queue"),
    "metadata": _METADATA,
    "queue": _QUEUE,
    "queue.source": _SIDE,
    "queue.sink": (*_SIDE, "memory_ratio"),
}
"""Fields of each object, by the path that leads to it."""


def read(path: Path) -> dict[str, Any]:
    """The JSON object of a file. Raises :class:`Misconfigured` without it, :class:`InvalidRequest` for what is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > MOST_FILE_BYTES:
        raise InvalidRequest(f"{path} has more than {MOST_FILE_BYTES} bytes.")
    try:
        doc = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path} is no JSON: {error}.") from error
    if not isinstance(doc, dict):
        raise InvalidRequest(f"{path} is no JSON object.")
    return doc


def terms_of(doc: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says, by the names that REST has for it. Raises :class:`InvalidRequest` naming each odd field."""
    unknown = sorted(_unknown(doc, ""))
    if unknown:
        raise InvalidRequest(" ".join(_said(name) for name in unknown))
    metadata, queue = doc.get("metadata", {}), doc.get("queue", {})
    if metadata.get("role") != ROLE:
        raise InvalidRequest(
            f'metadata.role: "{ROLE}" is what this makes; models are added with `signalbox models push`.'
        )
    if not metadata.get("name"):
        raise InvalidRequest("metadata.name: give the queue's name.")
    given = [place["resource"] for place in (metadata, queue) if "resource" in place]
    if len(given) > 1 and given[0] != given[1]:
        raise InvalidRequest("queue.resource: another one than metadata.resource; give one of them.")
    found = {name: metadata[name] for name in ("name", "group", "instance") if name in metadata}
    return found | {name: queue[name] for name in _QUEUE if name in queue} | ({"resource": given[0]} if given else {})


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is given twice")
    return found


def _unknown(doc: Mapping[str, Any], path: str) -> Iterator[str]:
    """Paths of fields that there are not. Raises :class:`InvalidRequest` for what is no object where one must be."""
    for name, value in doc.items():
        full = f"{path}.{name}".removeprefix(".")
        if name not in _FIELDS[path]:
            yield full
        elif full in _FIELDS:
            if not isinstance(value, Mapping):
                raise InvalidRequest(f"{full}: an object.")
            yield from _unknown(value, full)


def _said(name: str) -> str:
    known = [f"{path}.{field}".removeprefix(".") for path, fields in _FIELDS.items() for field in fields]
    near = difflib.get_close_matches(name[:200], known, n=1)
    return f"{name[:200]}: there is no such field{f'; did you mean {near[0]}?' if near else '.'}"
