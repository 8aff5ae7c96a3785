"""The edge's own answers, in the texts and formats that Tyk uses for the same events."""

import functools
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from gateway_plugin.edge.definition import Definition, Override
from gateway_plugin.edge.gatewayerrors import GatewayError

Headers = list[tuple[bytes, bytes]]

_XML_TYPES: Final = frozenset({"application/soap+xml", "application/xml", "text/xml"})
_BREAKS: Final = re.compile(r"[\r\n]")
# Go's JavaScript escaping, which Tyk uses inside its JSON template (\' included).
_SCRIPT_ESCAPES: Final = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in range(32)}
    | {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    | {char: f"\\u{ord(char):04X}" for char in "<>&="}
)


class EdgeResponse(NamedTuple):
    """One finished HTTP answer; ``headers`` holds everything but Date and Content-Length."""

    status: int
    headers: Headers
    body: bytes


def wire_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """Headers as bytes; line breaks in values become spaces, as Go's server makes them."""
    return [
        (name.encode(), (_BREAKS.sub(" ", value) if "\n" in value or "\r" in value else value).encode())
        for name, value in headers
    ]


TOO_LARGE: Final = EdgeResponse(
    413,
    wire_headers(
        [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff"), ("Connection", "close")]
    ),
    b"Request Entity Too Large\n",
)
BAD_REQUEST: Final = EdgeResponse(
    400,
    wire_headers([("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]),
    b"400 Bad Request",
)
"""The answer of Go's HTTP server before any gateway code runs."""


def moved(location: str) -> EdgeResponse:
    """The redirect to the cleaned path."""
    return EdgeResponse(301, wire_headers([("Location", location)]), b"")


def _xml_type(content_type: str) -> str:
    """The type of XML that a caller's Content-Type names; empty = none."""
    kind = content_type.split(";", maxsplit=1)[0]
    return kind if kind in _XML_TYPES else ""


class ErrorTemplates:
    """Turns the gateway's own errors into answers: overrides first, then the templates."""

    def __init__(self, front: Definition) -> None:
        self._json = front.error_json
        self._xml = front.error_xml
        self._overrides: dict[int, list[tuple[re.Pattern[str], Override]]] = {
            status: [(re.compile(rule.pattern), rule) for rule in rules] for status, rules in front.overrides.items()
        }
        self._remembered = functools.lru_cache(maxsize=256)(self.page)

    def known(self, error: GatewayError, content_type: str = "") -> EdgeResponse:
        """As :meth:`page`, remembered: for the gateway's own fixed texts only. Of the request nothing is kept."""
        return self._remembered(error, _xml_type(content_type))

    def page(self, error: GatewayError, content_type: str = "") -> EdgeResponse:
        """The answer for one error. content_type: the request's, it chooses JSON or XML."""
        xml = _xml_type(content_type)
        produced = xml or "application/json"
        for pattern, rule in self._overrides.get(error.status, ()):
            if error.flag == rule.flag or pattern.search(error.text):
                headers = {"Content-Type": produced} | rule.headers
                return EdgeResponse(rule.status, wire_headers(headers.items()), rule.body.encode())
        if xml:
            body = self._xml.replace("{{.Message}}", error.text)
        else:
            body = self._json.replace("{{.Message}}", error.text.translate(_SCRIPT_ESCAPES))
        return EdgeResponse(error.status, wire_headers([("Content-Type", produced)]), body.encode())
