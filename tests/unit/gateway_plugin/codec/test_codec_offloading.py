"""Whose message a thread reads, and what is read where it arrives."""

import asyncio
import threading

import pytest

from gateway_plugin.codec.offloading import HERE_BYTES, Offloading
from gateway_plugin.codec.protobuf.protowire import FEW_FIELDS, MOST_FIELDS, TooManyFields
from signalbox.program.errors import LimitExceeded


def thread_of(_most_fields: int) -> str:
    return threading.current_thread().name


async def test_small_messages_are_read_here_and_others_aside() -> None:
    offloading = Offloading(5.0)
    here = threading.current_thread().name
    assert await offloading.read("a", HERE_BYTES, thread_of) == here
    assert await offloading.read("a", HERE_BYTES + 1, thread_of) != here
    assert await offloading.write("a", 1, lambda: b"small") == b"small"


async def test_a_message_with_many_fields_is_read_again_with_more_of_them() -> None:
    seen: list[int] = []

    def work(most_fields: int) -> int:
        seen.append(most_fields)
        if most_fields == FEW_FIELDS:
            raise TooManyFields("more")
        return most_fields

    assert await Offloading(5.0).read("a", 1, work) == MOST_FIELDS
    assert seen == [FEW_FIELDS, MOST_FIELDS]


async def test_one_account_leaves_a_thread_to_the_others() -> None:
    offloading = Offloading(0.05)
    begun, go = threading.Event(), threading.Event()

    def slow(_most_fields: int) -> str:
        begun.set()
        go.wait(30)
        return "slow"

    large = HERE_BYTES + 1
    first = asyncio.create_task(offloading.read("a", large, slow))
    try:
        await asyncio.to_thread(begun.wait, 30)
        with pytest.raises(LimitExceeded, match="of your account"):
            await offloading.read("a", large, thread_of)
        assert await offloading.read("b", large, thread_of)
    finally:
        go.set()
    assert await first == "slow"


async def test_a_caller_who_leaves_holds_its_turn_until_its_thread_has_ended() -> None:
    offloading = Offloading(0.05)
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(_most_fields: int) -> None:
        begun.set()
        go.wait(30)
        ended.set()
        raise ValueError("nobody waits for this")

    large = HERE_BYTES + 1
    left = asyncio.create_task(offloading.read("a", large, slow))
    try:
        await asyncio.to_thread(begun.wait, 30)
        left.cancel()
        with pytest.raises(LimitExceeded):
            await offloading.read("a", large, thread_of)
    finally:
        go.set()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert ended.is_set()
    assert await offloading.read("a", large, thread_of)
