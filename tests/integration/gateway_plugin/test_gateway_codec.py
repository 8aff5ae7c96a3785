"""Large bodies in processes of their own: what happens when these die, fill up or are busy."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.forms import Form
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.codec.settings import CodecSettings
from signalbox.program.errors import (
    DeadlineExceeded,
    InvalidInput,
    InvalidJson,
    LimitExceeded,
    NotFound,
    TooLarge,
    Unavailable,
)
from signalbox.wire import tensors
from signalbox.wire.modeldocs import Signature, TensorSpec, Version
from signalbox.wire.tensors import Tensor
from tests.rigs.gateway import ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer

MIB = 1024 * 1024
ROOT = str(Path(__file__).parents[3])
LARGE = json.dumps({"note": "kept", "instances": [0.5] * 40_000}).encode()


@pytest.fixture
async def codec() -> AsyncIterator[BodyCodec]:
    made = BodyCodec(CodecSettings(decode_processes=1))
    yield made
    await made.close()


def choose(fields: Mapping[str, Any]) -> tuple[str, PreparedVersion]:
    known = model()
    return str(fields.get("note")), PreparedVersion(known, known.versions[0])


async def test_a_large_body_is_parsed_once_and_gives_what_a_small_one_would(codec: BodyCodec) -> None:
    there = await codec.read_elsewhere("me", LARGE, "", choose)
    here = codec.read_here(LARGE, choose)
    assert (there[0], there[2]) == (here[0], here[2])
    assert there[2].rows == 40_000


async def test_errors_come_back_as_they_would_from_here(codec: BodyCodec) -> None:
    with pytest.raises(InvalidJson) as caught:
        await codec.read_elsewhere("me", LARGE[:-1], "", choose)
    assert caught.value.facts["offset"] == len(LARGE) - 1
    with pytest.raises(InvalidInput) as refused:
        await codec.read_elsewhere("me", b'{"instances": ["a"]}', "", choose)
    assert refused.value.facts["input"] == "x"


async def test_what_the_caller_refuses_leaves_the_process_usable(codec: BodyCodec) -> None:
    def refuse(fields: Mapping[str, Any]) -> tuple[str, PreparedVersion]:
        raise NotFound("no such model")

    with pytest.raises(NotFound):
        await codec.read_elsewhere("me", LARGE, "", refuse)
    first = codec._idle[0]
    await codec.read_elsewhere("me", LARGE, "", choose)
    assert codec._idle == [first]


async def test_a_process_that_died_is_replaced(codec: BodyCodec) -> None:
    await codec.read_elsewhere("me", LARGE, "", choose)
    victim = codec._idle[0]._process
    os.kill(victim.pid, signal.SIGKILL)
    await victim.wait()
    assert (await codec.read_elsewhere("me", LARGE, "", choose))[0] == "kept"


async def test_a_process_that_dies_before_it_has_a_body_is_no_fault_of_the_body(
    codec: BodyCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/bin/false")
        with pytest.raises(Unavailable, match="could be started"):
            await codec.read_elsewhere("me", LARGE, "", choose)
    assert (await codec.read_elsewhere("me", LARGE, "", choose))[0] == "kept"


async def test_no_handler_of_grpc_runs_in_a_process_that_the_plugin_starts() -> None:
    """Under load they end some of them with SIGSEGV; gRPC reads the variable when it is imported."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    script = "import gateway_plugin.hooks.aio, os; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env={**clean, "PYTHONPATH": ROOT}, stdout=asyncio.subprocess.PIPE
    )
    assert (await process.communicate())[0] == b"0\n"


async def test_a_caller_who_leaves_does_not_leave_half_a_conversation(codec: BodyCodec) -> None:
    await codec.read_elsewhere("me", LARGE, "", choose)
    call = asyncio.create_task(codec.read_elsewhere("me", LARGE * 1, "", choose))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await codec.read_elsewhere("me", LARGE, "", choose))[0] == "kept"


async def test_a_body_that_needs_too_much_memory_is_refused_and_the_next_is_taken() -> None:
    small = CodecSettings(decode_memory_bytes=256 * 1024 * 1024, decode_timeout_s=3.0)
    codec = BodyCodec(small)
    try:
        greedy = b'{"instances": [' + b"[]," * 2_500_000 + b"[]]}"
        with pytest.raises((TooLarge, DeadlineExceeded)):
            await codec.read_elsewhere("me", greedy, "", choose)
        assert (await codec.read_elsewhere("me", LARGE, "", choose))[0] == "kept"
    finally:
        await codec.close()


async def test_names_at_their_bound_fit_into_the_memory_that_settings_ask_for() -> None:
    elements = 2_000_000
    settings = CodecSettings(
        max_body_bytes=8 * MIB,
        max_elements=elements,
        decode_memory_bytes=(256 + 8 * 8) * MIB + 96 * elements,
        decode_timeout_s=100.0,
    )
    assert list(settings.problems()) == []
    most = elements // 5 - 10
    deep = range(elements // 4 // 28 - 2_600)
    codec = BodyCodec(settings)
    try:
        for values in (
            [b'{"%x":0.5}' % n for n in range(most)],
            [b"".join(b'{"%x":' % (28 * n + m) for m in range(28)) + b"0" + b"}" * 28 for n in deep],
            [b'{"%b":NaN}' % b'":0,"'.join(b"%x" % (8 * n + m) for m in range(8)) for n in range(most // 8)],
        ):
            with pytest.raises(InvalidInput):
                await codec.read_elsewhere("me", b'{"instances":[' + b",".join(values) + b"]}", "", choose)
    finally:
        await codec.close()


async def test_rows_of_many_named_features_are_taken(codec: BodyCodec) -> None:
    """1 500 rows of 200, as TensorFlow Serving takes them."""
    spec = TensorSpec(dtype="float32", shape=(-1,))
    signature = Signature(inputs={f"feature_{n:03d}": spec for n in range(200)}, outputs={"y": spec})
    known = model(versions=(Version(version=1, path="/m", signatures={"serving_default": signature}),))
    rows = [dict.fromkeys(signature.inputs, 0.25 * n) for n in range(1_500)]

    def wide(_: Mapping[str, Any]) -> tuple[None, PreparedVersion]:
        return None, PreparedVersion(known, known.versions[0])

    body = json.dumps({"instances": rows}).encode()
    _, _, found = await codec.read_elsewhere("me", body, "", wide, Form.PREDICT)
    assert found.rows == 1_500
    assert [tensor.shape for tensor in tensors.decode(found.frame)] == [(1_500,)] * 200


async def test_a_busy_pool_refuses_after_its_time() -> None:
    codec = BodyCodec(CodecSettings(decode_processes=1, decode_timeout_s=0.3))
    try:
        async with codec._process("other"):
            with pytest.raises(Unavailable):
                await codec.read_elsewhere("me", LARGE, "", choose)
    finally:
        await codec.close()


async def test_refused_bodies_of_one_account_do_not_hold_up_another_s() -> None:
    codec = BodyCodec(CodecSettings(decode_timeout_s=100.0))  # the order is tested, on however busy a machine
    costly = b'{"instances": [' + b'"aa",' * 2_000_000 + b'"a"]}'
    ended: list[str] = []

    async def read(account: str, body: bytes) -> None:
        try:
            await codec.read_elsewhere(account, body, "", choose)
        except InvalidInput:
            ended.append(f"{account} refused")
        else:
            ended.append(f"{account} taken")

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(7):
                group.create_task(read("flood", costly))
            group.create_task(read("other", LARGE))
    finally:
        await codec.close()
    assert ended.count("flood refused") == 7
    assert ended.index("other taken") <= 4, ended


async def test_an_account_that_crowds_its_own_decoders_is_told_so() -> None:
    codec = BodyCodec(CodecSettings(decode_processes=2, decode_timeout_s=3.0))
    try:
        async with codec._process("mine"):
            with pytest.raises(LimitExceeded):
                await codec.read_elsewhere("mine", LARGE, "", choose)
            assert (await codec.read_elsewhere("other", LARGE, "", choose))[0] == "kept"
    finally:
        await codec.close()


async def test_large_results_are_rendered_there_too(codec: BodyCodec) -> None:
    frame = tensors.encode([Tensor("y", "float32", (50_000,), b"\x00\x00\x00\x3f" * 50_000)])
    assert json.loads(await codec.render("me", frame, "row")) == {"predictions": [0.5] * 50_000}
    assert codec._idle


async def test_no_other_caller_waits_for_a_large_body(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front:
        mine = key()
        await front.publish(model(), mine)
        ended: list[str] = []

        async def call(name: str, body: bytes) -> None:
            got = await front.call("POST", "/v1/models/half:predict", body, key=mine)
            assert got.status == 200, got.body[:200]
            ended.append(name)

        # Made before, as bytes: encoding it here would hold up the loop that the gateway under test shares.
        large_body = b'{"instances": [' + b"0.25," * 1_500_000 + b"0.25]}"
        async with ScriptedWorker(front.bus, "half"):
            large = asyncio.create_task(call("large", large_body))
            async with asyncio.timeout(60):
                while not large.done():
                    await call("small", b'{"instances": [1.0]}')
                await large
    # Several small ones came and went while the large one was decoded, run and rendered.
    assert ended.index("large") >= 3
