"""Webhooks with real NATS and a real receiver: what arrives, when it is tried again, and what is never called."""

import asyncio
import contextlib
import secrets
import ssl
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from standardwebhooks import Webhook as Verifier

from gateway_plugin.outbound.hooks.webhooks import Webhooks
from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus.client import Bus
from signalbox.bus.table import put, remove
from signalbox.jobs.commits import persist
from signalbox.ops.ports import free_port
from signalbox.program.metrics import REGISTRY
from signalbox.program.settings import Wire
from signalbox.program.tasks import Background
from signalbox.wire import jobids, names, outboundnames
from signalbox.wire.messages import State, decode, encode
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.outbound import Delivery, End, HookSecret, HookState, Webhook
from tests.rigs.logged import LoggedServer
from tests.rigs.natsserver import NatsServer
from tests.rigs.receiver import OK, Receiver, answer, silence

HOOK: Final = "wh1"
SECRET: Final = "whsec_" + b64encode(b"k" * 24).decode()


class Rig:
    """The task, the documents that the console would write, and the ends that the follower would."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.running = Background()

    def start(self, **settings: Any) -> None:
        given: dict[str, Any] = {
            "webhook_networks": ("127.0.0.0/8",),
            "hook_retries_s": (0.05, 0.05, 0.05),
        }
        lookup = settings.pop("lookup", None)
        made = OutboundSettings(**(given | settings))
        self.running.start(Webhooks(self.bus, made, lookup).run(), name="webhooks")

    async def hook(self, url: str, key: str = HOOK, **fields: Any) -> None:
        await put(self.bus, Bucket.HOOK_SECRETS, outboundnames.hook_secret(key, "1"), HookSecret(secret=SECRET))
        await put(self.bus, Bucket.WEBHOOKS, key, Webhook(id=key, account_id="a1", url=url, secret="1", **fields))

    async def consumer(self, key: str = HOOK) -> None:
        """Return when there is a consumer of the webhook: it gets what is written from then on."""
        await until(lambda: self._has_consumer(key))

    async def _has_consumer(self, key: str) -> bool:
        return outboundnames.hook_consumer(key) in await self.consumers()

    async def consumers(self) -> list[str]:
        return await self.bus.listed(f"$JS.API.CONSUMER.NAMES.{Stream.RESULTS}", "consumers")

    async def end(self, account: str = "a1", webhook: str = "") -> str:
        job_id = jobids.new_job_id(time.time(), secrets.randbits(60))
        end = End(
            request_id=job_id,
            prediction={"y": [1.5]},
            state=State.SUCCEEDED,
            account=account,
            model="half",
            version=1,
            created_at=1.0,
            finished_at=2.5,
            webhook=webhook,
        )
        await self.bus.write(outboundnames.result(account, "half", job_id), encode(end), expect=0)
        return job_id

    async def log(self, number: int, key: str = HOOK) -> Sequence[Delivery]:
        """The attempts, as soon as so many are logged."""
        found: list[Delivery] = []

        async def is_long() -> bool:
            seq = 0
            found.clear()
            while stored := await self.bus.leader_next(Stream.DELIVERIES, seq, outboundnames.deliveries(key)):
                found.append(decode(Delivery, stored.data))
                seq = stored.seq + 1
            return len(found) >= number

        await until(is_long)
        return found

    async def disabled(self, key: str = HOOK) -> HookState:
        """Its state, as soon as it is disabled."""
        found: list[HookState] = []

        async def is_disabled() -> bool:
            stored = await self.bus.leader_get(Bucket.HOOK_STATES.stream, names.key(Bucket.HOOK_STATES, key))
            found[:] = [decode(HookState, stored.data)] if stored is not None else []
            return bool(found and found[0].disabled_at)

        await until(is_disabled)
        return found[0]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when it holds; what NATS keeps tells nobody."""
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110  see above
            await asyncio.sleep(0.02)


@pytest.fixture
async def hooks(bus: Bus) -> AsyncIterator[Rig]:
    rig = Rig(bus)
    try:
        yield rig
    finally:
        await rig.running.cancel()


async def test_an_end_arrives_once_and_a_verifier_of_standard_webhooks_accepts_it(hooks: Rig) -> None:
    async with Receiver().serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start()
        await hooks.consumer()
        await hooks.end(account="other")
        job_id = await hooks.end()
        (got, *more) = await receiver.count(1)
        assert not more
        event = Verifier(SECRET).verify(got.body, got.headers)
        assert event["type"] == "job.ended"
        assert event["timestamp"] == "1970-01-01T00:00:02.500Z"
        assert (event["data"]["request_id"], event["data"]["prediction"]) == (job_id, {"y": [1.5]})
        assert got.line == "POST /hook?x=1 HTTP/1.1"
        assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
        assert got.headers["content-type"] == "application/json"
        (noted,) = await hooks.log(1)
        assert (noted.job_id, noted.attempt, noted.status, noted.answer, noted.next_at) == (job_id, 1, 200, "ok", 0.0)


async def test_what_failed_is_tried_again_under_one_id_with_a_new_signature(hooks: Rig) -> None:
    async with Receiver(answer("500 Oh", body=b"no"), OK).serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start(hook_retries_s=(1.2,))
        await hooks.consumer()
        await hooks.end()
        first, second = await receiver.count(2)
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
        for got in (first, second):
            Verifier(SECRET).verify(got.body, got.headers)
        assert first.body == second.body
        one, two = await hooks.log(2)
        assert (one.status, one.answer, two.status) == (500, "no", 200)
        assert one.next_at > one.at + 1


async def test_both_secrets_sign_while_one_takes_the_place_of_the_other(hooks: Rig) -> None:
    old = "whsec_" + b64encode(b"o" * 24).decode()
    async with Receiver().serving() as receiver:
        await put(hooks.bus, Bucket.HOOK_SECRETS, outboundnames.hook_secret(HOOK, "0"), HookSecret(secret=old))
        await hooks.hook(receiver.url, previous_secret="0", previous_until=time.time() + 60)
        hooks.start()
        await hooks.consumer()
        await hooks.end()
        (got,) = await receiver.count(1)
        for secret in (SECRET, old):
            Verifier(secret).verify(got.body, got.headers)


async def test_a_delivery_that_fails_to_the_last_is_given_up_and_the_next_one_is_made(hooks: Rig) -> None:
    async with Receiver(answer("500 Oh"), answer("500 Oh"), OK).serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start(hook_retries_s=(0.05,))
        await hooks.consumer()
        lost = await hooks.end()
        await receiver.count(2)
        kept = await hooks.end()
        log = await hooks.log(3)
        assert [(each.job_id, each.status, each.next_at > 0) for each in log] == [
            (lost, 500, True),
            (lost, 500, False),
            (kept, 200, False),
        ]


async def test_gone_disables_at_once_until_it_is_enabled_again(hooks: Rig) -> None:
    async with Receiver(answer("410 Gone"), OK).serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start()
        await hooks.consumer()
        await hooks.end()
        state = await hooks.disabled()
        assert "410" in state.why
        second = await hooks.end()
        await hooks.hook(receiver.url, enabled_at=state.disabled_at + 0.001)
        await receiver.count(2)
        assert [each.job_id for each in await hooks.log(2)][1:] == [second]


async def test_a_webhook_that_failed_for_long_is_disabled(hooks: Rig) -> None:
    async with Receiver(answer("503 Away")).serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start(hook_fails_s=0.05)
        await hooks.consumer()
        await hooks.end()
        await receiver.count(2)
        state = await hooks.disabled()
        assert "failed for" in state.why
        assert state.last_status == 503


async def test_redirects_are_not_followed(hooks: Rig) -> None:
    async with Receiver().serving() as inner:
        async with Receiver(answer("302 Found", f"Location: {inner.url}")).serving() as receiver:
            await hooks.hook(receiver.url)
            hooks.start(hook_retries_s=())
            await hooks.consumer()
            await hooks.end()
            (noted,) = await hooks.log(1)
        assert noted.status == 302
        assert "Redirects are not followed" in noted.error
        assert inner.received == []


async def test_megabytes_of_answer_are_not_read_and_its_status_counts(hooks: Rig) -> None:
    written = 0

    async def flood(_: object, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while written < 1_000_000_000:
                writer.write(b"x" * 65_536)
                await writer.drain()
                written += 65_536

    async with Receiver(flood).serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start()
        await hooks.consumer()
        await hooks.end()
        (noted,) = await hooks.log(1)
        assert (noted.status, len(noted.answer), noted.next_at) == (200, 1024, 0.0)
        assert written < 50_000_000


async def test_a_name_that_leads_inside_is_not_called(hooks: Rig) -> None:
    async def inside(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with Receiver().serving() as receiver:
        await hooks.hook(f"http://hooks.example.com:{receiver.port}/")
        hooks.start(webhook_networks=(), hook_retries_s=(), lookup=inside)
        await hooks.consumer()
        await hooks.end()
        (noted,) = await hooks.log(1)
        assert noted.status == 0
        await hooks.hook("https://hooks.example.com/")
        await hooks.end()
        assert "must not be called" in (await hooks.log(2))[1].error
        assert receiver.received == []


async def test_a_receiver_that_is_silent_or_away_keeps_no_other_one_waiting(hooks: Rig) -> None:
    async with Receiver(silence).serving() as slow, Receiver().serving() as well:
        await hooks.hook(slow.url, "slow")
        await hooks.hook("http://127.0.0.1:1/", "away")
        await hooks.hook(well.url, "well")
        hooks.start(hooks_at_once=2, hook_at_once=2, hook_total_s=5.0, hook_retries_s=(60,))
        for key in ("slow", "away", "well"):
            await hooks.consumer(key)
        began = time.monotonic()
        for _ in range(20):
            await hooks.end()
        await well.count(20)
        assert time.monotonic() - began < 5.0
        assert len(slow.received) <= 3
        away = await hooks.log(20, "away")
        assert {each.status for each in away} == {0}


async def test_a_task_that_ends_during_a_delivery_leaves_it_to_the_next_one(hooks: Rig) -> None:
    async with Receiver(silence, OK).serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start()
        await hooks.consumer()
        await hooks.end()
        await receiver.count(1)
        await hooks.running.cancel()
        hooks.start()
        first, second = await receiver.count(2)
        assert first.headers["webhook-id"] == second.headers["webhook-id"]


async def test_an_attempt_that_was_cut_off_is_none_of_those_of_the_schedule(hooks: Rig) -> None:
    async with Receiver(silence, silence, silence, answer("500 Oh")).serving() as receiver:
        await hooks.hook(receiver.url)
        for number in range(1, 5):
            hooks.start(hook_retries_s=(30, 30))
            if number == 1:
                await hooks.consumer()
                await hooks.end()
            await receiver.count(number)
            if number < 4:
                await hooks.running.cancel()
        (noted,) = await hooks.log(1)
        assert (noted.status, noted.attempt) == (500, 1)
        assert noted.next_at > noted.at


async def test_what_ended_while_no_task_ran_is_delivered_and_a_removed_webhook_leaves_nothing(hooks: Rig) -> None:
    async with Receiver().serving() as receiver:
        await hooks.hook(receiver.url, enabled_at=time.time() - 1)
        await hooks.end()
        hooks.start()
        await receiver.count(1)
        await remove(hooks.bus, Bucket.WEBHOOKS, HOOK)

        async def is_removed() -> bool:
            return not await hooks.consumers()

        await until(is_removed)


async def test_what_waits_to_be_tried_again_is_told_by_the_task_that_runs_for_as_long_as_there_is_the_webhook(
    hooks: Rig,
) -> None:
    async def is_told(number: int) -> bool:
        return REGISTRY.get_sample_value("signalbox_webhook_waiting") == number

    async with Receiver(*[answer("500 Oh")] * 20).serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start(hook_retries_s=(60,))
        await hooks.consumer()
        await hooks.end()
        await until(lambda: is_told(1))
        await hooks.running.cancel()
        assert await is_told(0)
        hooks.start(hook_retries_s=(60,))
        await until(lambda: is_told(1))
        await remove(hooks.bus, Bucket.WEBHOOKS, HOOK)
        await until(lambda: is_told(0))


async def test_a_person_has_an_end_delivered_again(hooks: Rig) -> None:
    async with Receiver().serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start()
        await hooks.consumer()
        job_id = await hooks.end()
        first, *_ = await receiver.count(1)
        await hooks.log(1)
        _, body = await hooks.bus.request(outboundnames.ask_delivery(HOOK), job_id.encode())
        made = decode(Delivery, body)
        assert (made.by_hand, made.status, made.job_id) == (True, 200, job_id)
        _, second = await receiver.count(2)
        assert second.headers["webhook-id"] == first.headers["webhook-id"]
        assert [each.by_hand for each in await hooks.log(2)] == [False, True]
        _, body = await hooks.bus.request(outboundnames.ask_delivery(HOOK), b"no job")
        assert "not kept" in msgspec.json.decode(body)["error"]
        unknown = jobids.new_job_id(time.time(), 1)
        await hooks.bus.publish(outboundnames.ask_delivery(HOOK), unknown.encode())
        told = (await hooks.log(3))[2]
        assert (told.job_id, told.by_hand, told.status) == (unknown, True, 0)
        assert "not kept" in told.error


async def test_no_person_has_an_end_of_another_account_delivered(hooks: Rig) -> None:
    async with Receiver().serving() as receiver:
        await hooks.hook(receiver.url)
        hooks.start()
        await hooks.consumer()
        foreign = await hooks.end(account="a2")
        _, body = await hooks.bus.request(outboundnames.ask_delivery(HOOK), foreign.encode())
        made = decode(Delivery, body)
        assert (made.status, receiver.received) == (0, [])
        assert "not one of this webhook's" in made.error


async def test_time_for_which_a_webhook_was_off_is_no_time_for_which_it_failed(hooks: Rig) -> None:
    """It failed, was switched off while its receiver was mended, and fails once more when it is on again."""
    now = time.time()
    failing = HookState(failing_since=now - 100)
    await put(hooks.bus, Bucket.HOOK_STATES, HOOK, failing)
    async with Receiver(answer("500 Oh")).serving() as receiver:
        await hooks.hook(receiver.url, enabled_at=now - 1)
        hooks.start(hook_fails_s=50, hook_retries_s=())
        await hooks.consumer()
        await hooks.end()
        await hooks.log(1)
        await hooks.running.cancel()
        stored = await hooks.bus.leader_get(Bucket.HOOK_STATES.stream, names.key(Bucket.HOOK_STATES, HOOK))
        assert stored is not None
        state = decode(HookState, stored.data)
        assert (state.last_status, state.disabled_at) == (500, 0.0)


async def test_a_job_s_own_url_is_called_on_hosts_of_its_account_only(hooks: Rig) -> None:
    async with Receiver().serving() as receiver:
        await hooks.hook("", is_for_jobs=True, hosts=("127.0.0.1",))
        hooks.start(hook_retries_s=())
        await hooks.consumer()
        await hooks.end()
        named = await hooks.end(webhook=receiver.url)
        strange = await hooks.end(webhook=receiver.url.replace("127.0.0.1", "127.0.0.2"))
        log = await hooks.log(2)
        assert {each.job_id: each.status for each in log} == {named: 200, strange: 0}
        assert len(receiver.received) == 1


async def test_a_job_s_own_url_that_is_gone_ends_no_other_job_s_deliveries(hooks: Rig) -> None:
    async with Receiver(answer("410 Gone"), OK).serving() as receiver:
        await hooks.hook("", is_for_jobs=True, hosts=("127.0.0.1",))
        hooks.start()
        await hooks.consumer()
        await hooks.end(webhook=receiver.url)
        await hooks.log(1)
        await hooks.end(webhook=receiver.url)
        assert [each.status for each in await hooks.log(2)] == [410, 200]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, ssl.SSLContext]:
    """The file of an authority, and what a receiver under the name hooks.example.com serves with."""
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    names_it = ["-subj", "/CN=hooks", "-addext", "subjectAltName=DNS:hooks.example.com"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", *made, "-keyout", key, "-out", cert, *names_it], check=True, capture_output=True
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    return cert, tls


async def test_the_pinned_address_is_called_under_its_name_which_its_certificate_proves(
    hooks: Rig, certificate: tuple[str, ssl.SSLContext]
) -> None:
    ca_file, tls = certificate
    said: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: said.append(name)
    looked_up: list[str] = []

    async def lookup(host: str, port: int) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    async with Receiver().serving(tls) as receiver:
        await hooks.hook(f"https://hooks.example.com:{receiver.port}/in")
        hooks.start(hook_ca_file=ca_file, hook_retries_s=(), lookup=lookup)
        await hooks.consumer()
        await hooks.end()
        (got,) = await receiver.count(1)
        assert got.headers["host"] == f"hooks.example.com:{receiver.port}"
        assert said == looked_up == ["hooks.example.com"]
        await hooks.log(1)
        await hooks.hook(f"https://other.example.com:{receiver.port}/in")
        await hooks.end()
        other = (await hooks.log(2))[1]
        assert other.status == 0
        assert "certificate" in other.error
        assert len(receiver.received) == 1


async def test_the_receiver_of_the_docs_takes_an_end(hooks: Rig, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "webhooks.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "receiver.py").write_text(code)
    port = free_port()
    env = {"SECRET": SECRET, "PORT": str(port)}
    await hooks.hook(f"http://127.0.0.1:{port}/")
    with LoggedServer([sys.executable, "receiver.py"], "ready", tmp_path, env):
        hooks.start()
        await hooks.consumer()
        await hooks.end()
        (noted,) = await hooks.log(1)
        assert noted.status == 204
        other = HookSecret(secret="whsec_" + b64encode(b"another").decode())
        await put(hooks.bus, Bucket.HOOK_SECRETS, outboundnames.hook_secret(HOOK, "1"), other)
        await hooks.end()
        assert (await hooks.log(2))[1].status == 401


async def test_deliveries_go_on_after_nats_was_away_and_after_their_consumer_was_lost(own_nats: NatsServer) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url, request_timeout_s=20.0), role="admin")
    rig = Rig(bus)
    try:
        async with Receiver().serving() as receiver:
            await rig.hook(receiver.url, enabled_at=time.time() - 1)
            rig.start()
            await rig.consumer()
            await own_nats.kill()
            await own_nats.start()
            await persist(rig.end)
            await receiver.count(1)
            await rig.log(1)
            await bus.request_json(f"$JS.API.CONSUMER.DELETE.{Stream.RESULTS}.{outboundnames.hook_consumer(HOOK)}")
            second = await rig.end()
            await receiver.count(3)  # the first once more, under its id
            assert {each.job_id for each in (await rig.log(3))[1:]} > {second}
    finally:
        await rig.running.cancel()
        await bus.close()
