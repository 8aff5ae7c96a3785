"""HTTP for the API client and the operators' tools: httpx, whose failures are raised as our errors."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, Self

import httpx

from signalbox.program.errors import Ambiguous, DeadlineExceeded, Unavailable


class Response(NamedTuple):
    """An answer. headers: names in lower case; of repeated ones the last."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ConnectionPool:
    """Keep-alive connections to one origin. At most ``size`` requests are in flight; more wait.

    headers: of every request. ``async with`` closes it.
    """

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, size: int = 16, timeout_s: float = 60.0
    ) -> None:
        self._url = httpx.URL(url)
        if self._url.scheme not in {"http", "https"} or not self._url.host:
            raise ValueError(f"not an http(s) URL: {url!r}")
        self._base = self._url.raw_path.rstrip(b"/")
        self._authority = self._url.netloc.decode()
        self._timeout_s = timeout_s
        is_tls = self._url.scheme == "https"
        self._client = httpx.AsyncClient(
            headers=headers,
            # The system's certificates, as every other program of the system has them; none are read without need.
            verify=ssl.create_default_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            limits=httpx.Limits(max_connections=size, max_keepalive_connections=size, keepalive_expiry=None),
            timeout=None,  # noqa: S113  the whole request has one time, below
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """One request and its whole answer, whatever its status.

        Raises :class:`Unavailable` when nothing listens there, :class:`Ambiguous` when the connection broke
        before the answer was whole, :class:`DeadlineExceeded` after the pool's ``timeout_s``.
        """
        url = self._url.copy_with(raw_path=self._base + path.encode("ascii"))
        try:
            async with asyncio.timeout(self._timeout_s):
                got = await self._client.request(method, url, content=body or None, headers=headers)
        except TimeoutError as error:
            raise DeadlineExceeded(f"No answer from {self._authority} in {self._timeout_s:g} s.") from error
        except httpx.ConnectError as error:
            raise Unavailable(f"No server listens at {self._authority}: {error}.") from error
        except AttributeError as error:  # anyio's, on uvloop: the connection broke as it was made, nothing was sent
            raise Unavailable(f"{self._authority} closed the connection as it was made.") from error
        except httpx.HTTPError as error:
            raise Ambiguous(f"{self._authority} closed the connection without an answer.") from error
        known = {name.lower(): value for name, value in got.headers.multi_items()}
        return Response(got.status_code, known, got.content)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.aclose()
