"""One attempt to tell a receiver of an end: what is said, signed afresh, and what is noted of it."""

import random
import time
from datetime import UTC, datetime
from typing import Final

import msgspec

from gateway_plugin.outbound.hooks import schedule, signing
from gateway_plugin.outbound.hooks.schedule import Decision, Outcome, decide
from gateway_plugin.outbound.hooks.sending import Answer, Sender
from gateway_plugin.outbound.hooks.states import States
from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus.client import Bus
from signalbox.jobs import joblog
from signalbox.program import egress, log, metrics
from signalbox.program.errors import InvalidRequest, Misconfigured, SignalboxError
from signalbox.wire import names, outboundnames
from signalbox.wire.events import is_removal
from signalbox.wire.messages import Doc, decode, encode
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import Delivery, HookSecret, Webhook

BY_HAND: Final = 0
"""The number of attempts that a person asked for: they are none of the schedule's."""
_ENDED: Final = "job.ended"
_ATTEMPTS: Final = metrics.counter(
    "webhook_attempts", "Attempts at deliveries of webhooks, by what came of them.", "outcome"
)
_SECONDS: Final = metrics.histogram("webhook_seconds", "From the begin of an attempt to the end of its answer.")
_encode: Final = msgspec.json.Encoder().encode


class Ended(Doc, frozen=True, kw_only=True):
    """What is read here of an :class:`~signalbox.wire.outbound.End`; the rest goes out as it is."""

    request_id: str
    finished_at: float
    webhook: str = ""
    trace: str = ""


def ids(job_id: str, data: bytes) -> dict[str, str]:
    """The fields of a log line about a job, from its end."""
    try:
        return {"job": job_id, "trace": decode(Ended, data).trace}
    except msgspec.MsgspecError:
        return joblog.only_id(job_id)


class _Event(msgspec.Struct, frozen=True):
    type: str
    timestamp: str
    data: msgspec.Raw


class Attempts:
    """Makes attempts, takes what came of them into the webhook's state, and writes the log."""

    def __init__(self, bus: Bus, settings: OutboundSettings, sender: Sender, states: States) -> None:
        self._bus = bus
        self._retries_s = settings.hook_retries_s
        self._sender = sender
        self._states = states

    async def make(self, key: str, hook: Webhook, data: bytes, number: int) -> tuple[Delivery, Decision]:
        """Tell the receiver of the end ``data`` once, as attempt ``number`` or :data:`BY_HAND`.

        Raises :class:`msgspec.MsgspecError` for an end that cannot be read, or :class:`Unavailable` where NATS does not
        answer.
        """
        ended = decode(Ended, data)
        at = time.time()
        answer = await self._send(key, hook, ended, data, at)
        decision = decide(answer.status, number or len(self._retries_s) + 1, self._retries_s, random.random())  # noqa: S311  jitter
        if decision.outcome is Outcome.GONE and hook.is_for_jobs:  # one job's URL is; those of others are not
            decision = Decision(Outcome.GIVEN_UP)
        _ATTEMPTS.labels(decision.outcome.value).inc()
        _SECONDS.observe(answer.took_ms / 1e3)
        self._states.attempted(key, answer, decision.outcome, at)
        if decision.outcome is not Outcome.DELIVERED:
            log.info(
                "webhook.attempt_failed",
                hook=key,
                job=ended.request_id,
                trace=ended.trace,
                attempt=number,
                status=answer.status,
                reason=answer.error,
            )
        return (
            Delivery(
                hook=key,
                job_id=ended.request_id,
                attempt=number,
                at=at,
                took_ms=answer.took_ms,
                status=answer.status,
                error=answer.error,
                answer=answer.text,
                by_hand=number == BY_HAND,
                next_at=time.time() + decision.delay_s if decision.delay_s else 0.0,
            ),
            decision,
        )

    def number(self, times: int, stored_at: float) -> int:
        """Which attempt it is, of an end that was handed out so many times and stored then (UTC seconds)."""
        return schedule.number(times, time.time() - stored_at, self._retries_s)

    def ended(self, key: str) -> None:
        """An attempt is not under way any more: the delivery waits to be tried again, or is done."""
        self._states.recount(key)

    async def note(self, made: Delivery, data: bytes) -> None:
        """Write an attempt to the log. What cannot be written now is not: the delivery counts. data: the end."""
        try:
            await self._bus.write(outboundnames.delivery(made.hook, made.job_id, made.attempt), encode(made))
        except SignalboxError as error:
            log.warning("webhook.not_logged", hook=made.hook, **ids(made.job_id, data), reason=error.public_message)

    async def _send(self, key: str, hook: Webhook, ended: Ended, data: bytes, at: float) -> Answer:
        try:
            url = _url(hook, ended)
            secrets = [await self._secret(key, name) for name in _names(hook, at)]
            finished = datetime.fromtimestamp(ended.finished_at, UTC).isoformat(timespec="milliseconds")
            body = _encode(_Event(_ENDED, finished.replace("+00:00", "Z"), msgspec.Raw(data)))
            headers = signing.signed(secrets, signing.message_id(key, ended.request_id), at, body)
        except (InvalidRequest, Misconfigured) as error:
            return Answer(0, error=error.public_message)
        return await self._sender.send(url, headers, body)

    async def _secret(self, key: str, name: str) -> str:
        """Read at each attempt, and kept nowhere."""
        secret = names.key(Bucket.HOOK_SECRETS, outboundnames.hook_secret(key, name))
        stored = await self._bus.direct_get(Bucket.HOOK_SECRETS.stream, secret)
        if stored is None or is_removal(stored.headers):
            raise Misconfigured("The webhook has no secret; give it one.")
        try:
            return decode(HookSecret, stored.data).secret
        except msgspec.MsgspecError as error:
            raise Misconfigured("The webhook's secret cannot be read; give it another one.") from error


def _names(hook: Webhook, at: float) -> list[str]:
    """Names of the secrets that sign at ``at``: the previous one too while it still counts."""
    is_rotating = hook.previous_secret and at < hook.previous_until
    return [hook.secret, hook.previous_secret] if is_rotating else [hook.secret]


def _url(hook: Webhook, ended: Ended) -> str:
    """Where an end goes. Raises :class:`InvalidRequest` for a job's own URL on a host that its account may not name."""
    if not hook.is_for_jobs:
        return hook.url
    host = egress.host_of(ended.webhook)
    if host not in hook.hosts:
        raise InvalidRequest("The account's jobs may name no URL on this host any more.")
    return ended.webhook
