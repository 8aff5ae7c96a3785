"""What a queue may be set to: the product's names and defaults, their bounds, and which two exclude one another. Pure.

They are those of PAI EAS's queue service (S4.11 to S4.22 of its documentation), so that a service.json written for it
means the same here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from signalbox.program.errors import InvalidRequest
from signalbox.wire.queuenames import SIDES, Side
from signalbox.wire.queues import ITEM_MOST_BYTES

MOST_NAME: Final = 60
"""Characters: the stream of a side has the name in its own, where an odd character takes three of 255."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}\Z")
MOST_SERVICES: Final = 20
MOST_WORD: Final = 100
"""Characters of a group and a resource, which are for people."""
DEFAULT_PAYLOAD_KB: Final = 8
MOST_PAYLOAD_KB: Final = ITEM_MOST_BYTES // 1024
MOST_MEMORY_MB: Final = 1_048_576
MOST_LENGTH: Final = 100_000_000
MOST_IDLE_S: Final = 7 * 86_400
MOST_DELIVERY: Final = 1_000_000
POLICIES: Final = ("Rear", "Drop")
_LENGTH, _PAYLOAD = "max_length", "max_payload_size_kb"
_IDLE: Final = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6}(?:\.\d{1,3})?)s?)?\Z")
_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "instance": (1, 5),
    "cpu": (1, 1024),
    "memory": (1, MOST_MEMORY_MB),
    "min_replica": (1, 5),
    "max_delivery": (0, MOST_DELIVERY),
    **{f"{side}_{_LENGTH}": (0, MOST_LENGTH) for side in SIDES},
    **{f"{side}_{_PAYLOAD}": (0, MOST_PAYLOAD_KB) for side in SIDES},
}


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """All that can be set of a queue, and changed. instance: replicas on NATS, as far as it has nodes. memory: MB.

    key: id of the account's key whose jobs the items of services are, empty = any of its keys that may. Of max_length
    and max_payload_size_kb of a side one is 0. max_idle_s: 0 = none. See :class:`console.queues.models`.
    """

    services: Sequence[str] = ()
    key: str = ""
    group: str = ""
    instance: int = 1
    resource: str = ""
    cpu: int = 1
    memory: int = 4000
    min_replica: int = 1
    memory_ratio: float = 0.5
    source_max_length: int = 0
    source_max_payload_size_kb: int = DEFAULT_PAYLOAD_KB
    source_auto_evict: bool = False
    sink_max_length: int = 0
    sink_max_payload_size_kb: int = DEFAULT_PAYLOAD_KB
    sink_auto_evict: bool = False
    max_delivery: int = 5
    max_idle_s: float = 0.0
    dead_message_policy: str = "Rear"


def changed(base: Terms, changes: Mapping[str, Any]) -> Terms:
    """These terms with some of them changed, each in its bounds.

    A length in place of a payload size, or the other way round, takes the place of what was there. Raises
    :class:`InvalidRequest` naming the field.
    """
    given = dict(changes)
    for side in SIDES:
        _settle(base, given, side)
    found = msgspec.structs.replace(base, **given)
    check(found)
    return found


def check(terms: Terms) -> None:
    """Raise :class:`InvalidRequest` naming the first field that is out of its bounds."""
    for name, (least, most) in _BOUNDS.items():
        if not least <= getattr(terms, name) <= most:
            raise InvalidRequest(f"{name}: {least} to {most}.")
    if terms.min_replica > terms.instance:
        raise InvalidRequest("min_replica: at most as many as there are instances.")
    if not 0 < terms.memory_ratio < 1:
        raise InvalidRequest("memory_ratio: the sink's part of the memory, between 0 and 1.")
    if not 0 <= terms.max_idle_s <= MOST_IDLE_S:
        raise InvalidRequest("max_idle: at most 168h; 0 = none.")
    if terms.dead_message_policy not in POLICIES:
        raise InvalidRequest(f"dead_message_policy: one of {', '.join(POLICIES)}.")
    for name in ("group", "resource"):
        if len(getattr(terms, name)) > MOST_WORD:
            raise InvalidRequest(f"{name}: at most {MOST_WORD} characters.")
    if len(terms.services) > MOST_SERVICES or len(set(terms.services)) < len(terms.services):
        raise InvalidRequest(f"services: name each once, at most {MOST_SERVICES}.")


def seconds_of(text: str) -> float:
    """The seconds of ``90s``, ``5m``, ``1h30m`` or ``0``; a number alone is seconds. Raises :class:`InvalidRequest`."""
    found = _IDLE.match(text.strip())
    if not text.strip() or found is None:
        raise InvalidRequest(f"max_idle: {text[:20]!r} is no time such as 90s, 5m or 1h; 0 = none.")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def text_of(seconds: float) -> str:
    """The inverse of :func:`seconds_of`, in the largest unit that it is whole in; ``0`` for none."""
    for length, unit in ((3600, "h"), (60, "m")):
        if seconds and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.10g}s" if seconds else "0"


def _settle(base: Terms, given: dict[str, Any], side: Side) -> None:
    """Have one of length and payload size be 0. Raises :class:`InvalidRequest` where both are given."""
    length, payload = f"{side}_{_LENGTH}", f"{side}_{_PAYLOAD}"
    if given.get(length) and given.get(payload):
        raise InvalidRequest(
            f"{length}: give it or {payload}, not both: each follows from the other and the queue's memory."
        )
    if given.get(length):
        given[payload] = 0
    elif given.get(payload):
        given[length] = 0
    elif not (given.get(length, getattr(base, length)) or given.get(payload, getattr(base, payload))):
        given[payload] = DEFAULT_PAYLOAD_KB
