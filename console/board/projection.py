"""What a viewer who is limited to some models is sent of the board: the same frames, without the others' rows.

Topics keep their numbers, so a delta of which nothing is left is sent too. Figures and counts of the whole fleet, which
name no model, are sent as they are.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final

import msgspec

from signalbox.wire.access import is_among

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_LINKED: Final = re.compile(r"^/models/([^/?#]+)|[?&]q=model:([^&\s]+)")
"""Where an alarm leads: to a model, or to its jobs."""
_WHOLE: Final = frozenset({"throughput", "health", "workers", "lanes"})
"""Topics whose keys name no model."""


@lru_cache(maxsize=64)
def projected(text: str, names: tuple[str, ...]) -> str:
    """A frame as who is limited to these models gets it; made once for all of them that have the same limit."""
    frame = _decode(text)
    topic = frame.get("topic")
    if topic is None or topic.startswith("job:"):  # who may not see a job is not let into its topic
        return text
    for part in ("state", "set"):
        if isinstance(frame.get(part), dict):
            frame[part] = _rows(topic, frame[part], names)
    for part in ("state", "add"):
        if isinstance(frame.get(part), list):
            frame[part] = [one for one in frame[part] if is_among(names, one.get("model", ""))]
    if "del" in frame and topic not in _WHOLE:
        frame["del"] = [key for key in frame["del"] if _is_key_shown(topic, key, names)]
    return _encode(frame).decode()


def _rows(topic: str, rows: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    match topic:
        case "queues":
            return {key: _queue(row, names) for key, row in rows.items() if is_among(names, key)}
        case "fetches":
            return {key: row for key, row in rows.items() if is_among(names, row.get("model", ""))}
        case "alarms":
            return {key: row for key, row in rows.items() if is_among(names, _linked(row.get("href", "")))}
        case "lanes":
            return {key: _lane(row, names) for key, row in rows.items()}
        case "workers":
            return {key: _worker(row, names) for key, row in rows.items()}
        case "throughput" | "health":
            return rows
    return {}


def _queue(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A queue; what a worker does before it is not named where it is another's."""
    other = row["behind"]
    if not other or is_among(names, other.partition(":")[0]):
        return row
    return row | {name: row[name].replace(other, "another model") for name in ("behind", "label", "why")}


def _lane(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A GPU with its holder and waiters; what it runs, and has in memory, of these models alone."""
    run = row.get("run")
    return row | {
        "run": run if run and is_among(names, run["model"]) else None,
        "jobs": [job for job in row["jobs"] if is_among(names, job["model"])],
        "models": [model for model in row["models"] if is_among(names, model.partition(":")[0])],
    }


def _worker(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    is_shown = is_among(names, row["ran"])
    return row | {
        "models": [loaded for loaded in row["models"] if is_among(names, loaded["model"])],
        "ran": row["ran"] if is_shown else "",
        "jobs_per_s": row["jobs_per_s"] if is_shown else 0.0,
        "label": row["label"] if is_shown else row["word"],
    }


def _linked(href: str) -> str:
    found = _LINKED.search(href)
    return (found[1] or found[2]) if found else ""


def _is_key_shown(topic: str, key: str, names: Collection[str]) -> bool:
    """Whether a row that is gone may have been shown: ``model``, ``model:version@host`` or ``alarm:...:model``."""
    parts = key.split(":")
    return any(is_among(names, part) for part in (parts[1:] if topic == "alarms" else parts[:1]))
