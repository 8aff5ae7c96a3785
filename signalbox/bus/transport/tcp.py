"""nats-py's TCP transport, mended where a connection turns to TLS."""

import ssl
from typing import Any
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport


class TcpSocket(TcpTransport):
    """The transport of one connection.

    A TLS handshake takes the socket away from the stream it began with. One that fails, or is cut short, gives it to
    no other, and the end of the first is then told to nobody: who waits for it (nats-py, before its next attempt and
    when it closes) would wait for ever. So such a socket is aborted here and forgotten.
    """

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int
    ) -> None:
        """Turn to TLS; nothing is connected any more where that does not succeed."""
        try:
            await super().connect_tls(uri, ssl_context, buffer_size, connect_timeout)
        except BaseException:
            writer, self._io_writer = self._io_writer, None
            if writer is not None:
                writer.transport.abort()
            raise
        if self._io_writer is not None:
            # nats-py makes its reader anew without telling it so: it would log a warning at every end.
            protocol: Any = self._io_writer.transport.get_protocol()
            protocol._over_ssl = True  # noqa: SLF001  asyncio tells it in no other way
