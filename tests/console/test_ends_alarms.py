"""The board says when ends of jobs are not sent out in time, and when some never were."""

import time

from console.feed.ends import LATE_S, SHOWN_S, read_ends
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.wire import names, outboundnames
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import EndsLost, FollowerPosition


async def follower_at(bus: Bus, seq: int, *, is_watched: bool = True) -> None:
    position = FollowerPosition(state_seq=seq, is_watched=is_watched)
    await put(bus, Bucket.DUTIES, outboundnames.FOLLOWER_POSITION, position)


async def test_a_follower_that_is_behind_for_a_minute_is_an_alarm(bus: Bus) -> None:
    now = time.time()
    assert await read_ends(bus, now) == {}
    seq = await bus.write(names.state("j"))
    await follower_at(bus, seq)
    assert await read_ends(bus, now + LATE_S / 2) == {}
    late = await read_ends(bus, now + LATE_S + 10)
    assert late.keys() == {"ends-late"}
    assert abs(late["ends-late"].since - now) < 60
    await follower_at(bus, seq, is_watched=False)
    assert await read_ends(bus, now + LATE_S + 10) == {}
    await follower_at(bus, seq + 1)
    assert await read_ends(bus, now + LATE_S + 10) == {}


async def test_what_went_unsent_stands_on_the_board_for_a_day(bus: Bus) -> None:
    now = time.time()
    await put(bus, Bucket.DUTIES, outboundnames.ENDS_LOST, EndsLost(records=3, at=now))
    found = await read_ends(bus, now + 60)
    assert found.keys() == {"ends-lost"}
    assert found["ends-lost"].text.startswith("3 records of ended jobs were removed")
    assert await read_ends(bus, now + SHOWN_S + 1) == {}
