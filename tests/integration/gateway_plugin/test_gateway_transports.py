"""What both transports of the hooks do alike, as the gRPC client of the C core sees it."""

import asyncio
import struct
from pathlib import Path

import grpc.aio
import pytest

from gateway_plugin.hooks import reading
from gateway_plugin.hooks.calls import DISPATCH, EVENT
from gateway_plugin.hooks.health import check_health
from gateway_plugin.hooks.native.frames import DATA, END_HEADERS, HEADERS, frame
from signalbox.front.traffic import BYTES, HOOKS
from tests.rigs.hookserver import LIMIT, counted, rig, shown


@pytest.fixture(params=["grpc", "native"])
def transport(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


async def test_bodies_of_every_size_come_back_whole(tmp_path: Path, transport: str) -> None:
    async with rig(tmp_path, transport) as made:
        for size in (0, 1, 16_379, 16_380, 16_384, 65_535, 65_536, 1_000_000, LIMIT - 200):
            body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
            assert await made.echo(body) == body.decode(), size


async def test_bytes_of_calls_and_answers_are_counted(tmp_path: Path, transport: str) -> None:
    def moved() -> list[float]:
        return [BYTES.labels(HOOKS, way)._value.get() for way in ("received", "sent")]

    body, before = b"x" * 100_000, moved()
    async with rig(tmp_path, transport) as made:
        await made.echo(body)
        received, sent = (now - then for now, then in zip(moved(), before, strict=True))
    for moved_bytes in (received, sent):
        assert len(body) < moved_bytes < len(body) + 10_000


async def test_hundreds_of_calls_at_once_get_each_their_own_answer(tmp_path: Path, transport: str) -> None:
    async with rig(tmp_path, transport) as made:
        bodies = [f"{number}-".encode() * (number % 97 * 40 + 1) for number in range(400)]
        answers = await asyncio.gather(*map(made.echo, bodies))
        assert answers == [body.decode() for body in bodies]


async def test_large_answers_wait_for_the_client_s_windows_and_small_ones_overtake(
    tmp_path: Path, transport: str
) -> None:
    async with rig(tmp_path, transport) as made:
        large = [bytes([65 + number]) * 2_000_000 for number in range(4)]
        answers = await asyncio.gather(*map(made.echo, large), *(made.echo(b"s") for _ in range(9)))
        assert answers == [body.decode() for body in large] + ["s"] * 9


async def test_the_other_methods_answer_and_unknown_ones_are_refused(tmp_path: Path, transport: str) -> None:
    async with rig(tmp_path, transport) as made:
        assert await made.bare(EVENT, b"") == b""
        assert await check_health(f"unix://{tmp_path}/p.sock", 5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await made.bare("/coprocess.Dispatcher/Nothing", b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_over_the_limit_is_refused_and_the_connection_lives(tmp_path: Path, transport: str) -> None:
    reason = "too_large:grpc" if transport == "grpc" else "too_large:http2"
    before = counted(reason)
    async with rig(tmp_path, transport) as made:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await made.echo(b"x" * (LIMIT + 1))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await made.echo(b"still here") == "still here"
        assert counted(reason) == before + 1


async def test_a_call_its_client_cancels_is_cancelled_here(tmp_path: Path, transport: str) -> None:
    async with rig(tmp_path, transport) as made:
        call = asyncio.create_task(made.echo(b"x", "/wait"))
        await asyncio.wait_for(made.plugin.arrived.wait(), 60)
        call.cancel()
        await asyncio.wait_for(made.plugin.cancelled.wait(), 60)
        assert await made.echo(b"next") == "next"


async def test_calls_of_a_client_that_goes_away_are_cancelled(tmp_path: Path, transport: str) -> None:
    async with rig(tmp_path, transport) as made:
        call = asyncio.create_task(made.echo(b"x", "/wait"))
        await asyncio.wait_for(made.plugin.arrived.wait(), 60)
        await made.channel.close(None)
        await asyncio.wait_for(made.plugin.cancelled.wait(), 60)
        await asyncio.wait([call])


async def test_more_calls_than_allowed_are_refused_at_once(tmp_path: Path, transport: str) -> None:
    async with rig(tmp_path, transport, max_concurrent=4, max_waiting=3) as made:
        calls = [asyncio.create_task(made.echo(b"x", "/wait")) for _ in range(5)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        (refused,) = done
        error = refused.exception()
        assert isinstance(error, grpc.aio.AioRpcError)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        made.plugin.gate.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert answers.count("x") == 4


async def test_a_connection_is_asked_to_redial_and_no_call_fails(tmp_path: Path, transport: str) -> None:
    async with rig(tmp_path, transport, max_connection_age_s=0.05) as made:
        for number in range(300):
            assert await made.echo(str(number).encode()) == str(number)


async def test_a_call_that_asks_for_too_much_is_counted_and_what_is_no_message_refused(
    tmp_path: Path, transport: str
) -> None:
    async with rig(tmp_path, transport, max_concurrent=4, max_waiting=3) as made:
        before = counted("limit_exceeded:grpc"), counted("invalid_request:grpc"), counted("method_not_allowed:grpc")
        waiting = []
        for _ in range(4):
            waiting.append(asyncio.create_task(made.echo(b"x", "/wait")))
            await asyncio.wait_for(made.plugin.arrived.wait(), 60)
            made.plugin.arrived.clear()
        codes = []
        for method, message in ((DISPATCH, shown("")), (DISPATCH, b"\xff\xff\xff"), ("/coprocess.Dispatcher/No", b"")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await made.bare(method, message)
            codes.append(caught.value.code())
        assert codes == [
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNIMPLEMENTED,
        ]
        after = counted("limit_exceeded:grpc"), counted("invalid_request:grpc"), counted("method_not_allowed:grpc")
        assert after == tuple(count + 1 for count in before)
        made.plugin.gate.set()
        assert await asyncio.gather(*waiting) == ["x"] * 4


async def test_a_compressed_message_is_refused(tmp_path: Path, transport: str) -> None:
    """A small one could be any size once it is unpacked."""
    async with rig(tmp_path, transport) as made:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await made.bare(DISPATCH, shown("", size=100_000), compression=grpc.Compression.Gzip)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await made.echo(b"still here") == "still here"


async def test_stopping_lets_a_call_in_flight_end_and_takes_no_new_one(tmp_path: Path, transport: str) -> None:
    async with rig(tmp_path, transport) as made:
        call = asyncio.create_task(made.echo(b"last words", "/wait"))
        await asyncio.wait_for(made.plugin.arrived.wait(), 60)
        stopping = asyncio.create_task(made.served.stop(60))
        await asyncio.sleep(0)
        assert not (tmp_path / "p.sock").exists()
        made.plugin.gate.set()
        assert await call == "last words"
        await asyncio.wait_for(stopping, 60)
        with pytest.raises(grpc.aio.AioRpcError):
            await made.echo(b"too late")


async def test_a_call_that_outlasts_the_grace_is_cancelled(tmp_path: Path, transport: str) -> None:
    async with rig(tmp_path, transport) as made:
        call = asyncio.create_task(made.echo(b"x", "/wait"))
        await asyncio.wait_for(made.plugin.arrived.wait(), 60)
        await made.served.stop(0.1)
        with pytest.raises(grpc.aio.AioRpcError):
            await call
        assert made.plugin.cancelled.is_set()


async def test_a_call_that_outlives_its_aged_connection_is_cut(tmp_path: Path, transport: str) -> None:
    times = {"max_connection_age_s": 0.1, "max_wait_s": 0.1, "decode_timeout_s": 0.1, "request_timeout_s": 0.1}
    async with rig(tmp_path, transport, **times) as made:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await made.echo(b"x", "/wait")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await asyncio.wait_for(made.plugin.cancelled.wait(), 60)


async def test_a_stranger_that_is_slow_keeps_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PROOF_S", 0.1)
    async with rig(tmp_path, "grpc", secret="between us", listen="127.0.0.1:0") as made:
        await made.bare(DISPATCH, shown("between us"))
        before = counted("limit_exceeded:proof")
        strangers = [await made.raw() for _ in range(8)]
        for raw in strangers:
            raw.greet()
            raw.send(frame(HEADERS, END_HEADERS, 1, raw.block()), frame(DATA, 0, 1, struct.pack(">BI", 0, 1000)))
        assert [await raw.status() for raw in strangers] == ["8"] * 8
        assert counted("limit_exceeded:proof") == before + 8
        await made.bare(DISPATCH, shown("between us"))
