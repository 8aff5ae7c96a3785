"""Carries the steps of calls out with httpx, with and without asyncio. Its failures are raised as our errors."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx

from signalbox.client.exchange import Effect, Emit, Open, Pause, Read, Receive, Resolve, Response, Send, Steps, Upgrade
from signalbox.program.errors import Ambiguous, Bug, DeadlineExceeded, SignalboxError, Unavailable

if TYPE_CHECKING:
    from signalbox.client.sockets import AsyncSocket, SyncSocket

T = TypeVar("T")
CONNECT_S: Final = 5.0
"""In which a front has to take a connection, before the next one is asked."""
LONGEST_S: Final = 10.0**6
"""What sockets take as a timeout where a call has none (``math.inf``)."""
QUIET_S: Final = 60.0
"""Longest silence of an open stream; its heartbeats come more often."""


class SyncTransport:
    """For plain code; threads may share it. connections: most at a time."""

    def __init__(self, urls: str | Sequence[str], key: str, connections: int, tls: ssl.SSLContext | None) -> None:
        self._options = _options(urls, key, connections, tls)
        self._own()

    def _own(self) -> None:
        """Have connections of this process: with those from before a fork, two would read each other's answers."""
        self._client, self._process = httpx.Client(**self._options), os.getpid()

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._client.close()

    def run(self, steps: Steps[T]) -> T:
        """Carry a call out; its result."""
        with closing(self.iterate(_emitted(steps))) as items:
            result: T = next(items)
            return result

    def iterate(self, steps: Steps[None]) -> Generator[Any, None, None]:
        """What a call emits, one after another."""
        if self._process != os.getpid():
            self._own()
        with closing(steps), closing(_Stream(self._client, self._options)) as stream:
            effect = next(steps, None)
            while effect is not None:
                try:
                    if isinstance(effect, Emit):
                        yield effect.item
                    got = self._act(effect, stream)
                except SignalboxError as error:
                    effect = _after(steps, error)
                else:
                    effect = _after(steps, got)

    def _act(self, effect: Effect, stream: "_Stream") -> Any:
        match effect:
            case Send(target):
                with _translated(target.authority):
                    ends = time.monotonic() + effect.timeout_s
                    with closing(self._client.send(_request(self._client, effect), stream=True)) as got:
                        return _response(got, b"".join(_until(ends, got.iter_bytes())))
            case Open():
                return stream.open(effect)
            case Read():
                return stream.read()
            case Upgrade():
                return stream.socket.open(effect)
            case Receive():
                return stream.socket.receive(effect)
            case Resolve(host, port):
                with _looked_up(host):
                    return _addresses(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            case Pause(seconds):
                time.sleep(seconds)
            case Emit():
                pass
        return None


class _Stream:
    """The response, or the websocket, that was opened last."""

    def __init__(self, client: httpx.Client, options: Mapping[str, Any]) -> None:
        self._client = client
        self._options = options
        self._socket: SyncSocket | None = None
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def open(self, effect: Open) -> Response:
        self.close()
        with _translated(effect.target.authority):
            self._response = response = self._client.send(_request(self._client, effect), stream=True)
            self._chunks = response.iter_bytes()
            return _response(response, response.read() if response.is_error else b"")

    def read(self) -> bytes | None:
        with _translated("the front of the stream"):
            return next(self._chunks, None)

    @property
    def socket(self) -> "SyncSocket":
        if self._socket is None:
            with _extra():
                from signalbox.client.sockets import SyncSocket
            self._socket = SyncSocket(self._options["headers"]["Authorization"], self._options["verify"])
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._response is not None:
            self._response.close()


class AsyncTransport:
    """For asyncio; used in one event loop. connections: most at a time."""

    def __init__(self, urls: str | Sequence[str], key: str, connections: int, tls: ssl.SSLContext | None) -> None:
        self._options = _options(urls, key, connections, tls)
        self._client = httpx.AsyncClient(**self._options)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.aclose()

    async def run(self, steps: Steps[T]) -> T:
        """Carry a call out; its result."""
        async with aclosing(self.iterate(_emitted(steps))) as items:
            result: T = await anext(items)
            return result

    async def iterate(self, steps: Steps[None]) -> AsyncGenerator[Any, None]:
        """What a call emits, one after another."""
        with closing(steps):
            async with aclosing(_AsyncStream(self._client, self._options)) as stream:
                effect = next(steps, None)
                while effect is not None:
                    try:
                        if isinstance(effect, Emit):
                            yield effect.item
                        got = await self._act(effect, stream)
                    except SignalboxError as error:
                        effect = _after(steps, error)
                    else:
                        effect = _after(steps, got)

    async def _act(self, effect: Effect, stream: "_AsyncStream") -> Any:
        match effect:
            case Send(target):
                with _translated(target.authority):
                    async with asyncio.timeout(min(effect.timeout_s, LONGEST_S)):  # httpx has none for a whole answer
                        return _response(await self._client.send(_request(self._client, effect)))
            case Open():
                return await stream.open(effect)
            case Read():
                return await stream.read()
            case Upgrade():
                return await stream.socket.open(effect)
            case Receive():
                return await stream.socket.receive(effect)
            case Resolve(host, port):
                with _looked_up(host):
                    loop = asyncio.get_running_loop()
                    return _addresses(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Emit():
                pass
        return None


class _AsyncStream:
    """The response, or the websocket, that was opened last."""

    def __init__(self, client: httpx.AsyncClient, options: Mapping[str, Any]) -> None:
        self._client = client
        self._options = options
        self._socket: AsyncSocket | None = None
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def open(self, effect: Open) -> Response:
        await self.aclose()
        with _translated(effect.target.authority):
            self._response = response = await self._client.send(_request(self._client, effect), stream=True)
            self._chunks = response.aiter_bytes()
            return _response(response, await response.aread() if response.is_error else b"")

    async def read(self) -> bytes | None:
        with _translated("the front of the stream"):
            return None if self._chunks is None else await anext(self._chunks, None)

    @property
    def socket(self) -> "AsyncSocket":
        if self._socket is None:
            with _extra():
                from signalbox.client.sockets import AsyncSocket
            self._socket = AsyncSocket(self._options["headers"]["Authorization"], self._options["verify"])
        return self._socket

    async def aclose(self) -> None:
        if self._socket is not None:
            await self._socket.aclose()
        if self._response is not None:
            await self._response.aclose()


def _emitted(steps: Steps[T]) -> Steps[None]:
    """Steps that emit the result of others."""
    yield Emit((yield from steps))


def _after(steps: Steps[None], got: Any) -> Effect | None:
    """The next effect, told what the last one gave, or the error that it raised. None at the end."""
    try:
        return steps.throw(got) if isinstance(got, SignalboxError) else steps.send(got)
    except StopIteration:
        return None
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, MemoryError) as error:
        # What the caller gives is looked at before anything is sent: this is an answer that is none of ours.
        raise Bug(f"The front's answer is not understood ({error!r}): is its URL Signalbox's, and as new?") from error


def _options(urls: str | Sequence[str], key: str, connections: int, tls: ssl.SSLContext | None) -> dict[str, Any]:
    if not (key and key.isascii() and key.isprintable() and " " not in key):
        raise ValueError("an API key is printable ASCII without spaces; this is none")  # and it is not shown
    is_tls = any(url.startswith("https:") for url in ([urls] if isinstance(urls, str) else urls))
    # The system's certificates, as every other program of the system has them; none are read without need.
    system = ssl.create_default_context() if is_tls and tls is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {
        "headers": {"Authorization": f"Bearer {key}"},
        "verify": tls or system,
        "limits": httpx.Limits(max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=90),
        "trust_env": False,
    }


def _request(client: httpx.Client | httpx.AsyncClient, effect: Send | Open) -> httpx.Request:
    target, request, limit_s = effect.target, effect.request, min(effect.timeout_s, LONGEST_S)
    quiet_s = QUIET_S if isinstance(effect, Open) else limit_s
    return client.build_request(
        request.method,
        target.url + request.path,
        content=request.body or None,
        headers={**request.headers, "Host": target.authority},
        timeout=httpx.Timeout(limit_s, connect=min(CONNECT_S, limit_s), read=quiet_s),
        extensions={"sni_hostname": target.name},
    )


def _until(ends: float, parts: Iterator[bytes]) -> Iterator[bytes]:
    """The parts that come before that instant. Raises :class:`TimeoutError`: httpx bounds each, but not all of them."""
    for part in parts:
        if time.monotonic() >= ends:
            raise TimeoutError
        yield part


def _response(got: httpx.Response, body: bytes | None = None) -> Response:
    headers = {name.lower(): value for name, value in got.headers.multi_items()}
    return Response(got.status_code, headers, got.content if body is None else body)


@contextmanager
def _translated(front: str) -> Generator[None, None, None]:
    """Raise what httpx raises as errors of ours."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Unavailable(f"No front listens at {front}: {str(error) or 'no answer'}. Is the URL right?") from error
    except httpx.PoolTimeout as error:
        raise DeadlineExceeded("All of the client's connections were busy: give it more (connections=).") from error
    except (httpx.TimeoutException, TimeoutError) as error:
        raise DeadlineExceeded(f"No answer from {front} in time: give the call longer (timeout_s=).") from error
    except AttributeError as error:  # anyio's, on uvloop: the connection broke as it was made, nothing was sent
        raise Unavailable(f"{front} closed the connection as it was made.") from error
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise Ambiguous(f"{front} closed the connection without a whole answer: {error}.") from error


@contextmanager
def _looked_up(host: str) -> Generator[None, None, None]:
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"The name {host} of the fronts has no address: {error}. Is the URL right?") from error


@contextmanager
def _extra() -> Generator[None, None, None]:
    try:
        yield
    except ImportError as error:
        raise ImportError("A watch needs a websocket: pip install 'signalbox[queues]'.") from error


def _addresses(found: list[Any]) -> list[str]:
    return [str(one[4][0]) for one in found]
