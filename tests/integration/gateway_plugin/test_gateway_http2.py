"""Our HTTP/2 server, judged by clients that break the protocol, frame by frame."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from gateway_plugin.hooks.calls import DISPATCH, EVENT
from gateway_plugin.hooks.native import bodies
from gateway_plugin.hooks.native.frames import PREFACE, frame
from gateway_plugin.proto.coprocess_pb2 import Object
from tests.rigs import hookserver
from tests.rigs.hookserver import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    HELLO,
    LIMIT,
    PADDED,
    PING,
    RESET,
    SETTINGS,
    WINDOW,
    RawClient,
    Rig,
    counted,
    shown,
)


@asynccontextmanager
async def rig(folder: Path, **fields: Any) -> AsyncIterator[Rig]:
    async with hookserver.rig(folder, "native", **fields) as made:
        yield made


async def test_what_is_not_a_message_is_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await made.bare(DISPATCH, b"\xff\xff\xff")
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        raw = await made.raw()
        raw.greet()
        raw.call(1, b"", flag=1)  # compressed
        assert await raw.status() == "12"
        raw.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, raw.block()))
        assert await raw.status() == "13"  # no message at all


async def test_every_refused_call_is_counted_with_its_reason(tmp_path: Path) -> None:
    async with rig(tmp_path, max_concurrent=1, max_waiting=0) as made:
        waiting = asyncio.create_task(made.echo(b"x", "/wait"))
        await asyncio.wait_for(made.plugin.arrived.wait(), 60)
        raw = await made.raw()
        raw.greet()
        whole = Object(hook_name="SignalboxPost").SerializeToString()
        refused: list[tuple[str, str, str, bytes, int]] = [
            ("limit_exceeded:grpc", "8", DISPATCH, whole, 0),
            ("method_not_allowed:grpc", "12", "/other", whole, 0),
            ("method_not_allowed:grpc", "12", DISPATCH, whole, 1),
            ("invalid_request:grpc", "13", DISPATCH, b"\xff", 0),
            ("too_large:http2", "8", DISPATCH, bytes(16_384), 0),
        ]
        for number, (reason, status, path, message, flag) in enumerate(refused):
            before = counted(reason)
            if reason == "too_large:http2":
                raw.send(frame(HEADERS, END_HEADERS, 2 * number + 1, raw.block(path)))
                raw.send(*(frame(DATA, 0, 2 * number + 1, message) for _ in range(LIMIT // 16_384 + 1)))
            else:
                raw.call(2 * number + 1, message, path=path, flag=flag)
            assert await raw.status() == status, reason
            assert counted(reason) == before + 1
        made.plugin.gate.set()
        assert await waiting == "x"


async def test_calls_reset_because_there_are_too_many_are_counted(tmp_path: Path) -> None:
    async with rig(tmp_path, max_concurrent=1, max_waiting=0) as made:
        before = counted("limit_exceeded:http2")
        raw = await made.raw()
        raw.greet()
        for stream in (1, 3, 5):  # none of them whole
            raw.send(frame(HEADERS, END_HEADERS, stream, raw.block()))
        stream, body = await raw.until(RESET)
        assert (stream, struct.unpack(">I", body)) == (5, (7,))
        assert counted("limit_exceeded:http2") == before + 1


async def test_stopping_lets_calls_in_flight_end_and_takes_no_new_ones(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        raw = await made.raw()
        raw.greet()
        call = asyncio.create_task(made.echo(b"last words", "/wait"))
        await asyncio.wait_for(made.plugin.arrived.wait(), 60)
        stopping = asyncio.create_task(made.served.stop(30))
        stream, body = await raw.until(GOAWAY)
        assert (stream, struct.unpack(">II", body)) == (0, (2**31 - 1, 0))
        _, token = await raw.until(PING)
        raw.send(frame(PING, ACK, 0, token))
        await raw.until(GOAWAY)
        assert await asyncio.wait_for(raw.reader.read(), 60) == b""
        made.plugin.gate.set()
        assert await call == "last words"
        await asyncio.wait_for(stopping, 60)
        with pytest.raises(grpc.aio.AioRpcError):
            await made.echo(b"too late")


async def test_a_field_that_is_indexed_later_keeps_its_meaning(tmp_path: Path) -> None:
    """The cache of header blocks must forget when the table they refer to has changed."""
    async with rig(tmp_path) as made:
        raw = await made.raw()
        raw.greet()
        for stream in range(1, 41, 2):
            is_ours = stream % 4 == 1
            raw.call(stream, b"", path=EVENT if is_ours else f"/other/{stream}")
            assert await raw.status() == ("0" if is_ours else "12")


WRONG: dict[str, tuple[bytes, int]] = {
    "not HTTP/2": (b"GET / HTTP/1.1\r\n\r\n", 1),
    "a frame beyond the limit": (HELLO + frame(DATA, 0, 1, b"x" * 16_385), 6),
    "data before headers": (HELLO + frame(DATA, 0, 1, b"x"), 1),
    "an even stream": (HELLO + frame(HEADERS, END_HEADERS, 2, b"\x82"), 1),
    "a broken header block": (HELLO + frame(HEADERS, END_HEADERS, 1, b"\x80"), 9),
    "a number without end": (HELLO + frame(HEADERS, END_HEADERS, 1, b"\xff" + b"\x83" * 12), 9),
    "an interrupted header block": (HELLO + frame(HEADERS, 0, 1, b"\x82") + frame(PING, 0, 0, bytes(8)), 1),
    "a continuation of nothing": (HELLO + frame(CONTINUATION, 0, 1, b""), 1),
    "a header block without end": (
        HELLO + frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"\x82" * 16_384) * 5,
        11,
    ),
    "more padding than frame": (HELLO + frame(HEADERS, END_HEADERS | PADDED, 1, b"\x09\x82"), 1),
    "a ping of the wrong size": (HELLO + frame(PING, 0, 0, b"x"), 6),
    "settings of the wrong size": (PREFACE + frame(SETTINGS, 0, 0, b"x"), 6),
    "a window beyond the largest": (HELLO + frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"), 3),
    "a method twice": (HELLO + frame(HEADERS, END_HEADERS, 1, b"\x83\x83"), 1),
    "a path after other fields": (HELLO + frame(HEADERS, END_HEADERS, 1, b"\x83\x90\x84"), 1),
    "the pseudo-header of an answer": (HELLO + frame(HEADERS, END_HEADERS, 1, b"\x83\x88"), 1),
    "a reset of what was never opened": (HELLO + frame(RESET, 0, 1, bytes(4)), 1),
    "a window for what was never opened": (HELLO + frame(WINDOW, 0, 1, b"\0\0\0\1"), 1),
    "a push": (HELLO + frame(5, END_HEADERS, 1, b""), 1),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_client_that_breaks_the_protocol_is_told_and_left(what: str, tmp_path: Path) -> None:
    sent, code = WRONG[what]
    before = counted("invalid_request:http2")
    async with rig(tmp_path) as made:
        raw = await made.raw()
        raw.send(sent)
        assert await raw.refused() == code
        assert counted("invalid_request:http2") == before + 1
        assert await made.echo(b"others go on") == "others go on"


@pytest.mark.parametrize("kind", [HEADERS, DATA])
async def test_a_request_that_ends_twice_breaks_the_protocol(kind: int, tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        raw = await made.raw()
        raw.greet()
        raw.call(1, Object(hook_name="SignalboxPost", request={"url": "/wait"}).SerializeToString())
        await asyncio.wait_for(made.plugin.arrived.wait(), 60)
        again = raw.block() if kind == HEADERS else b"more"
        raw.send(frame(kind, END_HEADERS | END_STREAM, 1, again))
        assert await raw.refused() == (1 if kind == HEADERS else 5)
        await asyncio.wait_for(made.plugin.cancelled.wait(), 60)
        assert await made.echo(b"others go on") == "others go on"


@pytest.mark.parametrize("kind", [HEADERS, DATA])
async def test_more_of_a_call_that_was_answered_breaks_the_protocol(kind: int, tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        raw = await made.raw()
        raw.greet()
        raw.call(1, b"", path=EVENT)
        assert await raw.status() == "0"
        again = raw.block() if kind == HEADERS else b"more"
        raw.send(frame(kind, END_HEADERS | END_STREAM, 1, again))
        assert await raw.refused() == 5


async def test_what_a_refused_call_had_still_on_its_way_is_let_pass(tmp_path: Path) -> None:
    async with rig(tmp_path, max_concurrent=1, max_waiting=0) as made:
        raw = await made.raw()
        raw.greet()
        for stream in (1, 3, 5):
            raw.send(frame(HEADERS, END_HEADERS, stream, raw.block()))
        assert (await raw.until(RESET))[0] == 5
        raw.send(frame(DATA, 0, 5, b"more"), frame(DATA, END_STREAM, 5, b"the last"))
        raw.send(frame(RESET, 0, 1, bytes(4)), frame(RESET, 0, 3, bytes(4)))
        raw.call(7, b"", path=EVENT)
        assert await raw.status() == "0"
        raw.send(frame(DATA, 0, 5, b"after the last"))
        assert await raw.refused() == 5


async def test_a_client_is_told_how_many_calls_it_may_have(tmp_path: Path) -> None:
    async with rig(tmp_path, max_concurrent=8, max_waiting=3) as made:
        raw = await made.raw()
        raw.greet()
        _, settings = await raw.until(SETTINGS)
        assert dict(struct.iter_unpack(">HI", settings))[3] == 16


async def test_a_client_that_begins_calls_only_to_reset_them_is_let_go(tmp_path: Path) -> None:
    waiting = Object(hook_name="SignalboxPost", request={"url": "/wait"}).SerializeToString()
    async with rig(tmp_path, max_concurrent=2, max_waiting=1) as made:
        raw, fair = await made.raw(), await made.raw()
        for each in (raw, fair):
            each.greet()
        for stream in range(1, 41, 4):
            fair.call(stream, waiting)
            fair.send(frame(RESET, 0, stream, bytes(4)))
            fair.call(stream + 2, b"", path=EVENT)
            assert await fair.status() == "0"
        for stream in range(1, 11, 2):
            raw.call(stream, waiting)
            raw.send(frame(RESET, 0, stream, bytes(4)), frame(PING, 0, 0, bytes(8)))
            if stream < 9:
                await raw.until(PING, is_ack=True)
        assert await raw.refused() == 11
        fair.call(101, b"", path=EVENT)
        assert await fair.status() == "0"


async def test_padding_priorities_unknown_frames_and_odd_cuts_are_understood(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        raw = await made.raw()
        block = raw.block(EVENT)
        body = b"\x03" + struct.pack(">BI", 0, 0) + b"pad"
        sent = b"".join(
            (
                PREFACE,
                frame(SETTINGS, 0, 0),
                frame(0xFA, 0, 0, b"grease"),
                frame(2, 0, 1, bytes(5)),
                frame(HEADERS, 0x20, 1, bytes(5) + block[:3]),
                frame(CONTINUATION, 0, 1, block[3:4]),
                frame(CONTINUATION, END_HEADERS, 1, block[4:]),
                frame(DATA, END_STREAM | PADDED, 1, body),
            )
        )
        for at in range(len(sent)):
            raw.send(sent[at : at + 1])
            await raw.writer.drain()
        assert await raw.status() == "0"


async def test_unfinished_requests_together_are_bounded(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        raw = await made.raw()
        raw.greet()
        for stream in range(1, 23, 2):
            raw.send(frame(HEADERS, END_HEADERS, stream, raw.block()))
            raw.send(*(frame(DATA, 0, stream, bytes(16_384)) for _ in range(LIMIT // 16_384 - 1)))
        assert await raw.status() == "8"  # the ninth of four megabytes
        assert await made.echo(b"others go on") == "others go on"


async def test_a_client_without_the_secret_has_one_message_and_strangers_together_two(tmp_path: Path) -> None:
    async with rig(tmp_path, secret="between us") as made:
        strangers = [await made.raw() for _ in range(3)]
        for raw in strangers:
            raw.greet()
        before = counted("limit_exceeded:http2"), counted("limit_exceeded:buffers")
        most = LIMIT // 16_384 - 1

        def begin(raw: RawClient, stream: int, frames: int = most) -> None:
            raw.send(frame(HEADERS, END_HEADERS, stream, raw.block()))
            raw.send(*(frame(DATA, 0, stream, bytes(16_384)) for _ in range(frames)))

        for raw in strangers[:2]:
            begin(raw, 1)
            begin(raw, 3, 2)
            assert (await raw.until(RESET))[0] == 3
        begin(strangers[2], 1, 8)
        assert await strangers[2].status() == "8"
        after = counted("limit_exceeded:http2"), counted("limit_exceeded:buffers")
        assert after == (before[0] + 2, before[1] + 1)
        ours = await made.raw()
        ours.greet()
        ours.call(1, shown("between us"))
        assert await ours.status() == "0"
        for stream in range(3, 19, 2):
            begin(ours, stream)
        ours.call(19, shown("between us"))
        assert await ours.status() == "0"
        for raw in strangers:
            raw.writer.close()
        await made.bare(DISPATCH, shown("between us", size=LIMIT - 1000))


async def test_strangers_leave_room_for_a_message_of_who_has_shown_the_secret(tmp_path: Path) -> None:
    """Where all bodies together have no more than one message's bytes, too."""

    def begin(raw: RawClient, stream: int) -> None:
        raw.send(frame(HEADERS, END_HEADERS, stream, raw.block()))
        raw.send(*(frame(DATA, 0, stream, bytes(16_384)) for _ in range(LIMIT // 16_384 - 1)))

    async with rig(tmp_path, secret="between us", max_bodies_bytes=LIMIT) as made:
        strangers = [await made.raw() for _ in range(2)]
        for raw in strangers:
            raw.greet()
            begin(raw, 1)
        assert await strangers[1].status() == "8"
        ours = await made.raw()
        ours.greet()
        ours.call(1, shown("between us"))
        assert await ours.status() == "0"
        begin(ours, 3)
        ours.call(5, shown("between us"))
        assert await ours.status() == "0"
        for raw in strangers:
            raw.writer.close()


async def test_a_stranger_that_is_slow_loses_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_PROOF_S", 0.1)
    async with rig(tmp_path, secret="between us") as made:
        raw, ours = await made.raw(), await made.raw()
        before = counted("limit_exceeded:proof")
        for each in (raw, ours):
            each.greet()
        ours.call(1, shown("between us"))
        assert await ours.status() == "0"
        for each in (raw, ours):
            each.send(frame(HEADERS, END_HEADERS, 3, each.block()), frame(DATA, 0, 3, bytes(100)))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await raw.until(RESET)
        assert counted("limit_exceeded:proof") == before + 1
        ours.call(5, shown("between us"))
        assert await ours.status() == "0"


async def test_large_first_messages_of_one_connection_all_come_through(tmp_path: Path) -> None:
    """Before one of them was whole, nothing tells that their client is ours."""
    async with rig(tmp_path, secret="between us") as made:
        messages = [shown("between us", size=LIMIT - 1_048_576) for _ in range(8)]
        before = counted("too_large:http2")
        await asyncio.gather(*(made.bare(DISPATCH, message) for message in messages))
        assert counted("too_large:http2") == before


async def test_a_stranger_has_one_call_at_a_time_until_it_has_shown_the_secret(tmp_path: Path) -> None:
    async with rig(tmp_path, secret="between us", max_concurrent=8, max_waiting=3) as made:
        raw = await made.raw()
        raw.greet()
        _, settings = await raw.until(SETTINGS)
        assert dict(struct.iter_unpack(">HI", settings))[3] == 1
        for stream in (1, 3):
            raw.send(frame(HEADERS, END_HEADERS, stream, raw.block()), frame(DATA, 0, stream, bytes(10)))
        assert await raw.until(RESET) == (3, struct.pack(">I", 7))
        raw.send(frame(RESET, 0, 1, struct.pack(">I", 8)))
        raw.call(5, bytes(10))  # no message that shows anything
        raw.call(7, shown("between us"))
        _, settings = await raw.until(SETTINGS)
        assert dict(struct.iter_unpack(">HI", settings)) == {3: 16}
        assert (await raw.until(DATA))[0] == 7
        for stream in (9, 11):
            raw.send(frame(HEADERS, END_HEADERS, stream, raw.block()), frame(DATA, 0, stream, bytes(10)))
        raw.call(13, shown("between us"))
        assert (await raw.until(DATA))[0] == 13


async def test_a_client_that_reads_nothing_is_let_go(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        raw = await made.raw()
        raw.greet()
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(raw.ping_for_ever(), 60)


async def test_large_answers_may_wait_unread_while_pings_come(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        raw = await made.raw()
        raw.send(PREFACE, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1)))
        raw.send(frame(WINDOW, 0, 0, struct.pack(">I", 2**30)))
        obj = Object(hook_name="SignalboxPost")
        obj.request.raw_body = b"y" * (LIMIT - 1000)
        message = obj.SerializeToString()
        for stream in range(1, 9, 2):
            raw.send(frame(HEADERS, END_HEADERS, stream, raw.block()))
            body = struct.pack(">BI", 0, len(message)) + message
            cuts = range(0, len(body), 16_384)
            raw.send(*(frame(DATA, 0, stream, body[at : at + 16_384]) for at in cuts))
            raw.send(frame(DATA, END_STREAM, stream))
            raw.send(frame(PING, 0, 0, bytes(8)))
            await raw.writer.drain()
        assert [await raw.status() for _ in range(4)] == ["0"] * 4


async def test_windows_are_kept_to_the_byte(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        raw = await made.raw()
        raw.send(PREFACE, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 10)))
        obj = Object(hook_name="SignalboxPost")
        obj.request.raw_body = b"y" * 100
        raw.call(1, obj.SerializeToString())
        _, first = await raw.until(DATA)
        assert len(first) == 10
        raw.send(frame(WINDOW, 0, 1, struct.pack(">I", 7)))
        _, second = await raw.until(DATA)
        assert len(second) == 7
        raw.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 13)))
        _, third = await raw.until(DATA)
        assert len(third) == 3
        raw.send(frame(WINDOW, 0, 1, struct.pack(">I", 100_000)))
        _, rest = await raw.until(DATA)
        whole = first + second + third + rest
        assert struct.unpack(">BI", whole[:5]) == (0, len(whole) - 5)
        replied = Object.FromString(whole[5:])
        assert replied.request.return_overrides.response_body == "y" * 100
