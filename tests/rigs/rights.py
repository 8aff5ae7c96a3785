"""What a server refuses of a user, in its own words."""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Final

from tests.rigs.natsserver import NatsServer

_REFUSED: Final = re.compile(rb'Permissions Violation for (Publish|Subscription) to "([^"]+)"')


async def refused(server: NatsServer, user: str, password: str, lines: Sequence[bytes]) -> set[str]:
    """The subjects the server refuses of these protocol lines."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        async with asyncio.timeout(60):
            await reader.readline()  # INFO
            login = {"user": user, "pass": password, "verbose": False, "headers": True}
            writer.write(b"CONNECT " + json.dumps(login).encode() + b"\r\n")
            writer.writelines([*lines, b"PING\r\n"])
            await writer.drain()
            found: set[str] = set()
            while (line := await reader.readline()) != b"PONG\r\n":
                assert line, "the server closed the connection"
                if match := _REFUSED.search(line):
                    found.add(match[2].decode())
            return found
    finally:
        writer.close()
