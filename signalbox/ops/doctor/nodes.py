"""Rules for what each node of a running NATS shows to whoever connects, before any password."""

import asyncio
import json
import ssl
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from signalbox.bus.transport import encryption
from signalbox.ops.doctor import certificates
from signalbox.ops.doctor.catalog import Finding
from signalbox.program.errors import Misconfigured

_NODE_S: Final = 10.0


async def examine(nats_url: str, ca_file: str) -> list[Finding]:
    """Examine the greeting of each node and, where NATS is encrypted, its certificate."""
    try:
        context = encryption.context(ca_file) if encryption.is_encrypted(nats_url, ca_file) else None
    except Misconfigured as error:
        return [Finding("file.unreadable", ca_file, error.public_message)]
    texts = [text.strip() for text in nats_url.split(",") if text.strip()]
    found = await asyncio.gather(*(_node(text, context) for text in texts))
    return [one for some in found for one in some]


async def _node(text: str, context: ssl.SSLContext | None) -> list[Finding]:
    parts = urlsplit(text if "://" in text else f"nats://{text}")
    if parts.scheme in {"ws", "wss"}:
        return []  # greets in a websocket
    where = f"{parts.hostname}:{parts.port or 4222}"
    found = []
    try:
        async with asyncio.timeout(_NODE_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 4222)
            try:
                greeting = json.loads((await reader.readline()).removeprefix(b"INFO "))
                if not greeting.get("auth_required"):
                    found.append(Finding("nats.no_users", where, "it lets in every client"))
                if context is not None:
                    await writer.start_tls(context, server_hostname=parts.hostname)
                    shown = writer.get_extra_info("peercert")
                    end = datetime.fromtimestamp(ssl.cert_time_to_seconds(shown["notAfter"]), UTC)
                    found += certificates.soon(end, where, datetime.now(UTC))
            finally:
                writer.transport.abort()
    except ssl.SSLCertVerificationError as error:
        found.append(Finding("certificate.refused", where, error.verify_message))
    except (OSError, TimeoutError, ValueError) as error:
        found.append(Finding("nats.away", where, str(error) or type(error).__name__))
    return found
