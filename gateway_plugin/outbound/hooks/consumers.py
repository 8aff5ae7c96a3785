"""The durable consumers of webhooks on ``RESULTS``: what is delivered, waits to be tried again, or is to come."""

import contextlib
from datetime import UTC, datetime
from typing import Any, Final

from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus.client import Bus
from signalbox.program.errors import NotFound
from signalbox.wire import outboundnames
from signalbox.wire.names import Stream
from signalbox.wire.outbound import Webhook

UNACKED: Final = 1000
"""Deliveries of one webhook that may wait to be tried again. No more are begun then: it has failed all of them."""
_SPARE_S: Final = 10.0
"""Beside an attempt: reads, and acknowledgements that NATS is slow to answer."""
_PREFIX: Final = outboundnames.hook_consumer("")


class Consumers:
    """Makes and removes them; the server keeps their places."""

    def __init__(self, bus: Bus, settings: OutboundSettings) -> None:
        self._bus = bus
        self._ack_wait_ns = int((settings.hook_total_s + _SPARE_S) * 1e9)

    async def ensure(self, key: str, hook: Webhook) -> str:
        """There is a consumer of the webhook under ``key``, as it is to be; returns its name.

        A new one begins with the ends written since the webhook was enabled; one that is there goes on.
        """
        name = outboundnames.hook_consumer(key)
        wanted = {
            "filter_subject": outboundnames.results(hook.account_id, hook.model),
            "ack_wait": self._ack_wait_ns,
            "max_ack_pending": UNACKED,
        }
        try:
            known = (await self._bus.request_json(self._subject("INFO", name)))["config"]
        except NotFound:
            known = self._new(name, hook)
        else:
            if wanted.items() <= known.items():
                return name
        ask = {"stream_name": Stream.RESULTS.value, "config": known | wanted, "action": ""}
        await self._bus.request_json(f"{self._subject('CREATE', name)}.{wanted['filter_subject']}", ask)
        return name

    async def remove(self, key: str) -> None:
        """Remove the consumer of a webhook that is gone. Idempotent."""
        with contextlib.suppress(NotFound):
            await self._bus.request_json(self._subject("DELETE", outboundnames.hook_consumer(key)))

    async def keys(self) -> list[str]:
        """Keys of the webhooks that have a consumer."""
        found: list[str] = await self._bus.listed(f"$JS.API.CONSUMER.NAMES.{Stream.RESULTS}", "consumers")
        return [name.removeprefix(_PREFIX) for name in found if name.startswith(_PREFIX)]

    async def unacked(self, key: str) -> int:
        """Deliveries of a webhook that are under way or wait to be tried again."""
        try:
            info = await self._bus.request_json(self._subject("INFO", outboundnames.hook_consumer(key)))
        except NotFound:
            return 0
        return int(info.get("num_ack_pending", 0))

    def _new(self, name: str, hook: Webhook) -> dict[str, Any]:
        start: dict[str, Any] = {"deliver_policy": "new"}
        if hook.enabled_at:
            start = {"deliver_policy": "by_start_time", "opt_start_time": _rfc3339(hook.enabled_at)}
        return start | {
            "durable_name": name,
            "name": name,
            "ack_policy": "explicit",
            "replay_policy": "instant",
            "max_deliver": -1,
        }

    def _subject(self, act: str, name: str) -> str:
        return f"$JS.API.CONSUMER.{act}.{Stream.RESULTS}.{name}"


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
