"""Reads what a call says in its query and headers. Pure; bounded before it is parsed."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from gateway_plugin.queues.items import Consumer, consumer_of, require_tags
from gateway_plugin.request import Request
from signalbox.program.errors import InvalidRequest, MethodNotAllowed

USER: Final = "X-Eas-Queueservice-Redis-Uid"
GROUP: Final = "X-Eas-Queueservice-Redis-Gid"
PRIORITY: Final = "X-Eas-Queueservice-Priority"
REAR: Final = "X-Eas-Queueservice-Access-Rear"
REQUEST: Final = "X-Eas-Queueservice-Request-Id"
MOST_PARAMETERS: Final = 64
LONGEST_QUERY: Final = 32_768
LONGEST_FORM: Final = 4096
MOST_INDEXES: Final = 1000
LARGEST: Final = 2**63 - 1
MOST_DIGITS: Final = 19
LONGEST_CODE: Final = 20
LONGEST_REASON: Final = 1024
_OWN: Final = re.compile(r"_[^=&]*_\Z")
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|us|µs|ns|s|m|h|)")
_UNIT_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_CODE: Final = re.compile(r"(?:[A-Z][A-Za-z0-9]*|[0-9]+)\Z")
_NO_HEADER: Final = re.compile(r"[\x00-\x1f\x7f]|\A |\Z(?<= )")
_TRUE: Final = frozenset({"true", "1"})
_FALSE: Final = frozenset({"false", "0", ""})


class Verb(StrEnum):
    """What a call does."""

    PUT = "put"
    END = "end"
    GET = "get"
    WATCH = "watch"
    SEARCH = "search"
    COUNT = "count"
    ATTRIBUTES = "attributes"
    COMMIT = "commit"
    DELETE = "delete"
    TRUNCATE = "truncate"
    FORGET = "forget"


_KNOWN: Final[Mapping[Verb, frozenset[str]]] = {
    Verb.PUT: frozenset({"_priority_"}),
    Verb.END: frozenset({"_eos_", "_force_"}),
    Verb.GET: frozenset({"_index_", "_length_", "_timeout_", "_auto_delete_", "_raw_"}),
    Verb.WATCH: frozenset({"_watch_", "_index_", "_window_", "_index_only_", "_auto_commit_"}),
    Verb.SEARCH: frozenset({"_search_", "_index_"}),
    Verb.COUNT: frozenset({"_count_", "_priority_"}),
    Verb.ATTRIBUTES: frozenset({"_attrs_"}),
    Verb.COMMIT: frozenset({"_indexes_", "_negative_", "_code_", "_reason_"}),
    Verb.DELETE: frozenset({"_indexes_"}),
    Verb.TRUNCATE: frozenset({"_index_", "_trunc_"}),
    Verb.FORGET: frozenset({"_forget_"}),
}
_TAGGED: Final = frozenset({Verb.PUT, Verb.GET, Verb.WATCH, Verb.COUNT})
"""Verbs whose other parameters are tags: of the item, or that it must have."""
_FLAGS: Final[Mapping[str, tuple[tuple[str, Verb], ...]]] = {
    "POST": (("_eos_", Verb.END),),
    "GET": (
        ("_watch_", Verb.WATCH),
        ("_attrs_", Verb.ATTRIBUTES),
        ("_search_", Verb.SEARCH),
        ("_count_", Verb.COUNT),
    ),
    "PUT": (),
    "DELETE": (("_trunc_", Verb.TRUNCATE), ("_forget_", Verb.FORGET)),
}
_OTHERWISE: Final = {"POST": Verb.PUT, "GET": Verb.GET, "PUT": Verb.COMMIT, "DELETE": Verb.DELETE}
METHODS: Final = ", ".join(_OTHERWISE)


class Call(msgspec.Struct, frozen=True):
    """One call. own: its parameters ``_name_``. tags: all others, with what their headers add."""

    verb: Verb
    own: Mapping[str, str]
    tags: Mapping[str, str]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A parameter that is ``true`` or ``false``. Raises :class:`InvalidRequest`."""
        return _flag(name, self.own[name]) if name in self.own else default

    def index(self, name: str = "_index_", *, default: int | None = None, least: int = 0) -> int:
        """A whole number. Raises :class:`InvalidRequest` where it is missing or out of its bounds."""
        if name not in self.own:
            if default is None:
                raise InvalidRequest(f"Say {name}, a whole number.", field=name)
            return default
        return whole(name, self.own[name], least)

    def indexes(self) -> tuple[int, ...]:
        """The indexes in ``_indexes_``, each once. Raises :class:`InvalidRequest`."""
        text = self.own.get("_indexes_", "")
        parts = text.split(",") if text else []
        if not 0 < len(parts) <= MOST_INDEXES:
            raise InvalidRequest(
                f"Say _indexes_: 1 to {MOST_INDEXES} indexes with commas between, as _indexes_=7,8.", field="_indexes_"
            )
        return tuple(dict.fromkeys(whole("_indexes_", part.strip(), 1) for part in parts))

    def timeout_s(self) -> float:
        """How long a get waits for an item, seconds. Raises :class:`InvalidRequest`."""
        return duration_s(self.own.get("_timeout_", "0"))


def query_of(request: Request) -> list[tuple[str, str]]:
    """The parameters of a request. Raises :class:`InvalidRequest` for too many, or for what is no UTF-8."""
    return _pairs(request.url.partition("?")[2], LONGEST_QUERY, "query")


def form_of(request: Request) -> dict[str, str]:
    """The fields in a body that is a form. Raises :class:`InvalidRequest`."""
    if len(request.raw_body) > LONGEST_FORM:
        raise InvalidRequest(f"A form has at most {LONGEST_FORM} bytes.", limit_bytes=LONGEST_FORM)
    try:
        text = request.raw_body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("The body must be a form: _code_=...&_reason_=...") from error
    return _once(_pairs(text, LONGEST_FORM, "form"))


def says_queue(headers: Mapping[str, str], pairs: list[tuple[str, str]]) -> bool:
    """Whether a call is one of a queue's, whatever is at its address."""
    return USER in headers or any(_OWN.match(name) for name, _ in pairs)


def call_of(request: Request, pairs: list[tuple[str, str]]) -> Call:
    """The call that a request is. Raises :class:`InvalidRequest`, and :class:`MethodNotAllowed`."""
    if request.method not in _OTHERWISE:
        raise MethodNotAllowed(f"A queue takes {METHODS}.", allow=METHODS)
    found = _once(pairs)
    own = {name: value for name, value in found.items() if name.startswith("_")}
    tags = {name: value for name, value in found.items() if not name.startswith("_")}
    asked = [(name, verb) for name, verb in _FLAGS[request.method] if name in own and _flag(name, own[name])]
    if len(asked) > 1:
        raise InvalidRequest(f"One call does one thing: leave {asked[1][0]} out.", field=asked[1][0])
    verb = asked[0][1] if asked else _OTHERWISE[request.method]
    known = _KNOWN[verb] | {name for name, _ in _FLAGS[request.method]}  # one that is false says nothing
    if unknown := sorted(own.keys() - known):
        name = unknown[0][:64]
        raise InvalidRequest(
            f"{name} is no parameter of {verb}, and no tag begins with _; it takes {', '.join(sorted(known))}.",
            field=name,
        )
    if tags and verb not in _TAGGED:
        raise InvalidRequest(f"{verb} takes no tags: leave {min(tags)[:64]} out.", field=min(tags)[:64])
    require_tags(tags)
    return Call(verb, own, tags)


def is_high(call: Call, headers: Mapping[str, str]) -> bool | None:
    """Whether items of high priority are meant; None = not said. Raises :class:`InvalidRequest`."""
    text = call.own.get("_priority_", headers.get(PRIORITY))
    return None if text is None else whole("_priority_", text, 0) > 0


def consumer(headers: Mapping[str, str], user: str = "") -> Consumer:
    """Who calls. user: where no header says. Raises :class:`InvalidRequest`."""
    return consumer_of(headers.get(GROUP, ""), headers.get(USER) or user)


def is_rear(headers: Mapping[str, str]) -> bool:
    """Whether the rear queue is meant. Raises :class:`InvalidRequest`."""
    return _flag(REAR, headers.get(REAR, "false"))


def require_header(name: str, text: str) -> None:
    """Raise :class:`InvalidRequest` for what no header can say: an answer to be given has it in one, and one that
    cannot be sent is a put of which nobody knows."""
    if _NO_HEADER.search(text):
        raise InvalidRequest(
            f"{name} may have no control characters, and no space at its ends: the answer says it in a header.",
            field=name,
        )


def code_of(text: str) -> str:
    """The code of a negative commit. Raises :class:`InvalidRequest`."""
    if len(text) > LONGEST_CODE or _CODE.match(text) is None:
        raise InvalidRequest(
            f"_code_ must be words in CamelCase, or digits, of at most {LONGEST_CODE} characters, as Shutdown.",
            field="_code_",
        )
    return text


def duration_s(text: str) -> float:
    """A duration as Go writes it (``5s``, ``1m30s``, ``500ms``), or whole seconds. Raises :class:`InvalidRequest`."""
    total, at = 0.0, 0
    while at < len(text) and (part := _DURATION.match(text, at)) is not None:
        total += float(part[1]) * _UNIT_S[part[2]]
        at = part.end()
        if not part[2]:
            break
    if not text or at < len(text) or len(text) > LONGEST_CODE:
        raise InvalidRequest("_timeout_ must be a time: 5s, 500ms, 1m30s.", field="_timeout_")
    return total


def whole(name: str, text: str, least: int) -> int:
    """A whole number of at least ``least`` that fits 63 bits. Raises :class:`InvalidRequest`."""
    digits = text[1:] if text[:1] == "-" else text
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS
    if not is_number or not least <= int(text) <= LARGEST:
        raise InvalidRequest(f"{name} must be a whole number of at least {least}.", field=name)
    return int(text)


def _flag(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered not in _FALSE:
        raise InvalidRequest(f"{name} must be true or false.", field=name)
    return False


def _pairs(text: str, most: int, what: str) -> list[tuple[str, str]]:
    if len(text) > most:
        raise InvalidRequest(f"The {what} has at most {most} characters.", limit=most)
    try:
        return parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS, encoding="utf-8"
        )
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The {what} must be UTF-8.") from error
    except ValueError as error:
        raise InvalidRequest(f"The {what} has at most {MOST_PARAMETERS} parameters.", limit=MOST_PARAMETERS) from error


def _once(pairs: list[tuple[str, str]]) -> dict[str, str]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"{twice[:64]} is said twice.", field=twice[:64])
    return found
