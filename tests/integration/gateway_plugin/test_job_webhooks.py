"""A job that names a URL for its end: which URLs it may name, and where it is written."""

import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook as Verifier

from gateway_plugin.outbound.follower import follow
from gateway_plugin.outbound.hooks.webhooks import Webhooks
from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.jobs.records import Records
from signalbox.program.tasks import Background
from signalbox.wire import outboundnames
from signalbox.wire.messages import Job, decode
from signalbox.wire.names import Bucket, Header, Stream
from signalbox.wire.outbound import HookSecret, Webhook
from tests.rigs.gateway import Key, Reply, Rig, ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer
from tests.rigs.receiver import Receiver

URL = "https://hooks.example.com/in"


@pytest.fixture
async def whose(front: Rig) -> Key:
    made = key(webhook_hosts=("hooks.example.com", "10.0.0.1"))
    await front.publish(model(), made)
    return made


async def submit(front: Rig, whose: Key, webhook: Any) -> Reply:
    return await front.call("POST", "/v1/jobs", {"model": "half", "instances": [1.0], "webhook": webhook}, key=whose)


async def test_a_job_keeps_the_url_that_it_names(front: Rig, whose: Key) -> None:
    accepted = await submit(front, whose, URL)
    assert accepted.status == 202
    stored = await front.bus.leader_next(Stream.JOBS, 1)
    assert stored is not None
    assert decode(Job, stored.headers[Header.JOB]).webhook == URL
    await front.call("POST", f"/v1/jobs/{accepted.doc['id']}/cancel", key=whose)
    found = await Records(front.bus).read(accepted.doc["id"])
    assert found is not None
    assert found[0].webhook == URL
    shown = await front.call("GET", f"/v1/jobs/{accepted.doc['id']}", key=whose)
    assert shown.doc["webhook"] == URL


@pytest.mark.parametrize(
    "webhook",
    [
        "http://hooks.example.com/in",
        "https://10.0.0.1/",
        "https://hooks.example.com:22/",
        "https://user@hooks.example.com/",
        f"{URL}?{'x' * 1024}",
        7,
    ],
)
async def test_a_url_that_may_not_be_called_is_a_bad_request(front: Rig, whose: Key, webhook: Any) -> None:
    refused = await submit(front, whose, webhook)
    assert (refused.status, refused.doc["field"]) == (400, "webhook")
    assert await front.queued() == 0


async def test_a_host_that_is_not_the_account_s_is_forbidden_and_says_who_adds_it(front: Rig, whose: Key) -> None:
    refused = await submit(front, whose, "https://other.example.com/in")
    assert (refused.status, refused.doc["field"]) == (403, "webhook")
    assert "hooks.example.com" in refused.doc["detail"]
    assert "operator" in refused.doc["detail"]
    assert await front.queued() == 0


async def test_each_of_many_jobs_may_name_its_own(front: Rig, whose: Key) -> None:
    jobs = [{"model": "half", "instances": [1.0], "webhook": url} for url in (URL, "https://other.example.com/")]
    answered = await front.call("POST", "/v1/jobs", {"jobs": jobs}, key=whose)
    assert (answered.doc["accepted"], answered.doc["refused"]) == (1, 1)
    assert answered.doc["jobs"][1]["error"]["status"] == 403


async def test_the_end_of_a_job_goes_from_the_gateway_to_the_url_that_it_named(
    nats: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    networks = ("127.0.0.0/8",)
    whose = key(webhook_hosts=("127.0.0.1",))
    account = whose.stored.account_id
    settings = OutboundSettings(nats_url=nats.url, webhook_networks=networks)
    secret = "whsec_" + b64encode(b"k" * 24).decode()
    sending = Background()
    async with rig(nats.url, tmp_path, webhook_networks=networks) as front, Receiver().serving() as receiver:
        await front.publish(model(), whose)
        hook = Webhook(id="h", account_id=account, is_for_jobs=True, hosts=whose.stored.webhook_hosts, secret="1")
        await put(bus, Bucket.HOOK_SECRETS, outboundnames.hook_secret("h", "1"), HookSecret(secret=secret))
        await put(bus, Bucket.WEBHOOKS, "h", msgspec.structs.replace(hook, enabled_at=time.time() - 1))
        try:
            async with ScriptedWorker(bus, "half"):
                silent = await submit(front, whose, None)
                named = await submit(front, whose, receiver.url)
                sending.start(follow(bus, settings), name="follower")
                sending.start(Webhooks(bus, settings).run(), name="webhooks")
                (got,) = await receiver.count(1)
            event = Verifier(secret).verify(got.body, got.headers)
            assert event["data"]["request_id"] == named.doc["id"]
            assert event["data"]["prediction"] == [2.5]
            ends = await bus.list_latest(Stream.RESULTS, [outboundnames.results()])
            assert [each.subject for each in ends] == [outboundnames.result(account, "half", named.doc["id"])]
            assert silent.status == 202
        finally:
            await sending.cancel()
