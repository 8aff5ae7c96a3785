"""Who of several that remove an item has it, when NATS answers and when it does not."""

from collections.abc import Mapping
from typing import Any

import pytest

from gateway_plugin.queues import removal
from signalbox.program.errors import Ambiguous, Misconfigured, SignalboxError, Unavailable

DONE = b'{"success":true}'
GONE = b'{"error":{"code":400,"err_code":10043,"description":"sequence 2 not found"}}'
NEVER = b'{"error":{"code":500,"err_code":10057,"description":"stream store EOF"}}'
DENIED = b'{"error":{"code":400,"err_code":10071,"description":"no"}}'
NO_LEADER = b'{"error":{"code":503,"err_code":10008,"description":"no leader"}}'


class Scripted:
    """A connection with an answer for each sequence. asked: those that were asked for."""

    def __init__(self, answers: Mapping[int, bytes | SignalboxError]) -> None:
        self._answers = answers
        self.asked: list[int] = []

    async def request(self, subject: str, data: bytes, **_: Any) -> tuple[bytes, bytes]:
        assert subject == "$JS.API.STREAM.MSG.DELETE.S"
        number = int(data.split(b":")[1].split(b",")[0])
        self.asked.append(number)
        answer = self._answers.get(number, DONE)
        if isinstance(answer, SignalboxError):
            raise answer
        return b"", answer


async def remove(bus: Scripted, *indexes: int) -> set[int]:
    return await removal.remove(bus, "S", indexes)  # type: ignore[arg-type]  # a stand-in


async def test_only_what_this_call_removed_is_returned() -> None:
    assert await remove(Scripted({2: GONE, 4: NEVER}), 1, 2, 3, 4) == {1, 3}


async def test_an_item_is_asked_for_once_and_no_item_has_a_number_below_one() -> None:
    bus = Scripted({})
    assert await remove(bus, 1, 1, 0, -1) == {1}
    assert bus.asked == [1]


async def test_an_item_whose_answer_is_lost_is_given_out_and_not_lost() -> None:
    assert await remove(Scripted({2: Ambiguous()}), 1, 2) == {1, 2}


@pytest.mark.parametrize("refusal", [Unavailable("away"), NO_LEADER])
async def test_while_nats_is_away_what_was_removed_before_is_returned(refusal: bytes | SignalboxError) -> None:
    first, second = range(1, 65), range(65, 130)
    bus = Scripted(dict.fromkeys(second, refusal))
    assert await remove(bus, *first, *second) == set(first)
    with pytest.raises(Unavailable):
        await remove(bus, *second)


async def test_a_refusal_is_not_taken_for_an_item_that_is_gone() -> None:
    with pytest.raises(Misconfigured):
        await remove(Scripted({1: DENIED}), 1)
