"""Calls of a REST API, one at a time: the console's, and what a login asks a front. Refusals are our errors."""

import json
import ssl
from collections.abc import Mapping
from typing import IO, Any, Final, Protocol, Self, cast

import httpx

from signalbox.program.errors import (
    Ambiguous,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    InvalidRequest,
    Misconfigured,
    NotFound,
    SignalboxError,
    Unauthorized,
    Unavailable,
)

CONNECT_S: Final = 10.0
ANSWER_S: Final = 300.0
"""Registering a version reads all of its files, in a process of its own."""
_BY_STATUS: Final[Mapping[int, type[SignalboxError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
}


class Readable(Protocol):
    """A file, as far as it is read to be sent: :mod:`httpx` asks ``fileno`` how long it is."""

    def read(self, size: int = -1) -> bytes:
        """The next bytes; empty at the end."""

    def fileno(self) -> int:
        """The open file below."""


class Rest:
    """One server. bearer: the key or token of each request. answer_s: the longest it may be silent. ``with`` closes it.

    Raises :class:`Misconfigured` for what is no URL.
    """

    def __init__(self, url: str, bearer: str, *, answer_s: float = ANSWER_S) -> None:
        self.url = url.rstrip("/")
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise Misconfigured(f"{url!r} is no URL: {error}.") from error
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise Misconfigured(f"{url!r} is no URL of a server: it begins with http:// or https://.")
        if not bearer.isascii() or not bearer.isprintable():
            raise Misconfigured("The key or token has characters that none has; copy it anew.")
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {bearer}", "Accept": "application/json"},
            # The system's certificates, as every other program of the system has them; none are read without need.
            verify=ssl.create_default_context() if parsed.scheme == "https" else True,
            timeout=httpx.Timeout(answer_s, connect=min(answer_s, CONNECT_S)),
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(
        self, method: str, path: str, doc: Mapping[str, Any] | None = None, *, query: Mapping[str, Any] | None = None
    ) -> Any:
        """The answer's JSON, or None where it has none. Raises the :class:`SignalboxError` of the refusal."""
        return self._send(method, path, json=doc, params=query)

    def upload(self, path: str, fields: Mapping[str, str], name: str, file: Readable) -> Any:
        """Send a file as the form field ``archive``, read as it is sent; the answer as :meth:`ask` gives it."""
        return self._send(
            "POST", path, data=fields, files={"archive": (name, cast("IO[bytes]", file), "application/octet-stream")}
        )

    def _send(self, method: str, path: str, **content: Any) -> Any:
        try:
            answer = self._client.request(method, path, **content)
        except httpx.ConnectError as error:
            raise Unavailable(f"No server listens at {self.url}: {error}.") from error
        except httpx.TimeoutException as error:
            raise DeadlineExceeded(f"No answer from {self.url} in time.") from error
        except httpx.HTTPError as error:
            raise Ambiguous(f"{self.url} closed the connection without an answer. Look what became of it.") from error
        if answer.status_code >= 400 or answer.is_redirect:
            raise self._refusal(method, path, answer)
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError as error:
            raise Misconfigured(f"{self.url} answered {method} {path} with no JSON: is this the address?") from error

    def _refusal(self, method: str, path: str, answer: httpx.Response) -> SignalboxError:
        try:
            doc = json.loads(answer.content)
        except ValueError:
            doc = {}
        said = doc.get("detail") or doc.get("error") if isinstance(doc, dict) else ""
        status = answer.status_code
        kind = _BY_STATUS.get(status) or (Unavailable if status >= 500 else InvalidRequest)
        text = str(said) if said else f"{self.url} answered {status} to {method} {path}."
        if kind is Unauthorized:
            text += f" The key or token for {self.url} is of no use there: get another one, then `signalbox login`."
        return kind(text)
