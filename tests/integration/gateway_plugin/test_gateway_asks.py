"""Loads, unloads and reloads: who may ask for them, what is refused here, and when an answer comes.

The console is a script that answers as it is told; what the real one does is in tests/console/test_asked.py.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace

from gateway_plugin.proto.inference_pb2 import ModelRepositoryParameter, RepositoryModelRequest
from gateway_plugin.proto.serving_pb2 import ModelConfig, ModelServerConfig, ReloadConfigRequest, ReloadConfigResponse
from signalbox.bus import table
from signalbox.bus.client import Message
from signalbox.wire.asks import SCOPE, ConsoleAnswer, ConsoleAsk
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import Bucket, ask_console
from signalbox.wire.servingconfig import ServingModel
from signalbox.wire.workerdocs import Residency
from tests.integration.gateway_plugin.test_tfserving_grpc import Client, upstream
from tests.rigs.gateway import ALL_SCOPES, Key, Rig, key, model, reached, rig
from tests.rigs.natsserver import NatsServer
from tests.rigs.presence import presence

LOAD, UNLOAD = "/v2/repository/models/half/load", "/v2/repository/models/half/unload"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
OK = ConsoleAnswer(status="ok")


def manager() -> Key:
    return key(scopes=(*ALL_SCOPES, SCOPE))


@asynccontextmanager
async def console(at: Rig, *answers: ConsoleAnswer) -> AsyncIterator[asyncio.Queue[ConsoleAsk]]:
    """Answers, with the last one from then on; what it was asked."""
    asked: asyncio.Queue[ConsoleAsk] = asyncio.Queue()
    left = list(answers or [OK])

    async def receive(message: Message) -> None:
        await at.bus.publish(message.reply, encode(left.pop(0) if len(left) > 1 else left[0]))
        asked.put_nowait(decode(ConsoleAsk, message.data))

    subscription = await at.bus.subscribe(ask_console(), receive)
    try:
        yield asked
    finally:
        await subscription.close()


async def tell(at: Rig, state: str, error: str = "", worker: str = "w1", device: str = "CPU-test-0") -> None:
    """A worker's presence, with the model in a state; returns when the plugin has seen it."""
    here = (Residency(model="half", version=1, state=state, error=error),)
    revision = await table.put(at.bus, Bucket.WORKERS, worker, presence(worker, device, models=here), ttl_s=60)
    await reached(at.gateway._workers, worker, revision)


async def test_without_the_scope_nothing_is_asked_and_without_a_console_it_is_503(
    nats: NatsServer, tmp_path: Path
) -> None:
    plain, mine = key(), manager()
    async with rig(nats.url, tmp_path) as at:
        await at.publish(model(), plain, mine)
        async with console(at) as asked:
            for path in (LOAD, UNLOAD):
                refused = await at.call("POST", path, key=plain)
                assert (refused.status, SCOPE in refused.doc["error"]) == (403, True)
        assert asked.empty()
        for path in (LOAD, UNLOAD):
            away = await at.call("POST", path, key=mine)
            assert (away.status, "is away" in away.doc["error"]) == (503, True)
            assert away.headers["Retry-After"]
        assert (await at.call("GET", LOAD, key=mine)).status == 405


async def test_a_load_is_answered_when_the_model_is_in_memory_on_each_of_its_devices(
    nats: NatsServer, tmp_path: Path
) -> None:
    mine = manager()
    async with rig(nats.url, tmp_path) as at, console(at) as asked:
        await at.publish(model(replicas=2), mine)
        await tell(at, "ready")
        await tell(at, "loading", worker="w2", device="CPU-test-1")
        answer = asyncio.create_task(at.call("POST", LOAD, b"{}", key=mine))
        one = await asked.get()
        assert (one.key_id, one.account) == (mine.stored.id, mine.stored.account_id)
        assert (one.what, one.model) == ("load", "half")
        assert not answer.done()
        await tell(at, "ready", worker="w2", device="CPU-test-1")
        got = await answer
        assert (got.status, got.doc) == (200, {})


@pytest.mark.parametrize(
    ("state", "words"),
    [("failed", "cannot be loaded on CPU-test-0: no such op"), ("crowded", "does not fit on CPU-test-0")],
)
async def test_a_load_that_cannot_be_done_is_answered_with_the_reason(
    nats: NatsServer, tmp_path: Path, state: str, words: str
) -> None:
    mine = manager()
    async with rig(nats.url, tmp_path) as at, console(at):
        await at.publish(model(), mine)
        got = await at.call("POST", LOAD, key=mine)
        assert (got.status, "No worker serves half" in got.doc["error"]) == (503, True)
        await tell(at, state, "no such op")
        got = await at.call("POST", LOAD, key=mine)
        assert (got.status, words in got.doc["error"]) == (503, True)


async def test_a_load_that_takes_longer_than_the_longest_wait_says_how_far_it_is(
    nats: NatsServer, tmp_path: Path
) -> None:
    mine = manager()
    async with rig(nats.url, tmp_path, max_wait_s=0.5) as at, console(at):
        await at.publish(model(), mine)
        await tell(at, "fetching")
        got = await at.call("POST", LOAD, key=mine)
        assert (got.status, "on CPU-test-0 it is fetching" in got.doc["error"]) == (504, True)


async def test_an_unload_is_answered_when_requests_are_refused(nats: NatsServer, tmp_path: Path) -> None:
    mine = manager()
    async with rig(nats.url, tmp_path) as at:
        await at.publish(model(), mine)
        async with console(at) as asked:
            body = b'{"parameters": {"unload_dependents": true}}'
            answer = asyncio.create_task(at.call("POST", UNLOAD, body, key=mine))
            await asked.get()
            assert not answer.done()
            await at.publish(replace(model(), is_enabled=False))
            got = await answer
            assert (got.status, got.doc) == (200, {})


@pytest.mark.parametrize("parameters", ['{"config": "{}"}', '{"file:1/model.savedmodel": "AA=="}', "[]"])
async def test_a_load_that_brings_files_is_refused(nats: NatsServer, tmp_path: Path, parameters: str) -> None:
    mine = manager()
    async with rig(nats.url, tmp_path) as at, console(at) as asked:
        await at.publish(model(), mine)
        got = await at.call("POST", LOAD, f'{{"parameters": {parameters}}}'.encode(), key=mine)
        assert got.status == 400
        assert asked.empty()


async def test_what_the_console_refuses_is_refused_in_its_words(nats: NatsServer, tmp_path: Path) -> None:
    mine = manager()
    async with rig(nats.url, tmp_path) as at:
        await at.publish(model(), mine)
        for status, http in (("not_found", 404), ("conflict", 409), ("forbidden", 403), ("internal", 503)):
            said = ConsoleAnswer(status=status, text="For a reason.")
            async with console(at, said):
                got = await at.call("POST", LOAD, key=mine)
            assert (got.status, got.doc["error"]) == (http, "For a reason.")


@pytest.fixture
async def served(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of the gRPC services whose key may manage models."""
    async with upstream(nats, tmp_path) as made:
        mine = manager()
        await made.rig.publish(mine)
        yield Client(made._channel, mine, made.rig)


def config(*models: ModelConfig) -> bytes:
    request = ReloadConfigRequest(config=ModelServerConfig())
    request.config.model_config_list.config.extend(models)
    return request.SerializeToString()


async def test_a_reload_reaches_the_console_as_it_was_sent(served: Client) -> None:
    one = ModelConfig(name="half", base_path="/models/half", model_platform="tensorflow", version_labels={"stable": 1})
    one.model_version_policy.specific.versions.extend([1, 2])
    two = ModelConfig(name="other")
    two.model_version_policy.all.SetInParent()
    async with console(served.rig) as asked:
        reply = await served.ask(ReloadConfigResponse, RELOAD, config(one, two))
    assert reply.status.error_code == 0
    assert (await asked.get()).models == (
        ServingModel(name="half", base_path="/models/half", labels={"stable": 1}, specific=(1, 2)),
        ServingModel(name="other", is_all=True),
    )


async def test_a_reload_that_is_refused_has_the_code_and_the_words(served: Client) -> None:
    code = grpc.StatusCode
    error = await served.refusal(RELOAD, config(ModelConfig(name="half")))
    assert (error.code(), "is away" in str(error.details())) == (code.UNAVAILABLE, True)
    async with console(served.rig, ConsoleAnswer(status="conflict", text="Not imported.")) as asked:
        error = await served.refusal(RELOAD, config(ModelConfig(name="half")))
        assert (error.code(), str(error.details())) == (code.ABORTED, "Not imported.")
        await asked.get()
        for message, words in (
            (b"", "ServerConfig type not supported"),
            (config(ModelConfig(name="m"), ModelConfig(name="m")), "Duplicate ModelConfig"),
            (config(ModelConfig(name="m", model_platform="torch")), "torch is not served"),
            (config(ModelConfig(name="m", model_type=2)), "other is not served"),
            (config(ModelConfig(name="m" * 300_000)), "at most 262144 are taken"),
        ):
            error = await served.refusal(RELOAD, message)
            assert (error.code(), words in str(error.details())) == (code.INVALID_ARGUMENT, True), error.details()
        assert asked.empty()


async def test_grpc_loads_and_unloads_as_rest_does(served: Client) -> None:
    service = "/inference.GRPCInferenceService"
    asked_for = RepositoryModelRequest(model_name="half")
    await tell(served.rig, "ready")
    async with console(served.rig) as asked:
        assert await served.start(f"{service}/RepositoryModelLoad", asked_for.SerializeToString()) == b""
        assert (await asked.get()).what == "load"
        await served.rig.publish(replace(model(), is_enabled=False))
        assert await served.start(f"{service}/RepositoryModelUnload", asked_for.SerializeToString()) == b""
        assert (await asked.get()).what == "unload"
        asked_for.parameters["config"].CopyFrom(ModelRepositoryParameter(string_param="{}"))
        error = await served.refusal(f"{service}/RepositoryModelLoad", asked_for.SerializeToString())
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
