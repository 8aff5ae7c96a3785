"""Which jobs are looked for that no worker was given."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from signalbox.bus.client import Bus
from signalbox.jobs import delivery, life
from signalbox.jobs.records import Records
from signalbox.wire.workerdocs import Residency
from tests.rigs.submit import Ledger, floats
from workers.host.presence import MOST_COUNTED
from workers.recovery import undelivered
from workers.recovery.undelivered import WAITED_BUSY_S, WAITED_S, UndeliveredJobs


class Finder:
    """A finder at a time of its own. asked_for: the models whose queues it had read anew."""

    def __init__(self, bus: Bus) -> None:
        self.now = time.time()
        self.workers: list[Any] = []
        self.asked_for: list[str] = []
        self.known: set[str] = set()
        self._bus = bus
        self._jobs = UndeliveredJobs(bus, Records(bus), lambda: self.workers, clock=lambda: self.now)

    def begin(self) -> None:
        """Have it begin anew."""
        self._jobs.begin()

    async def turns(self, *after_s: float) -> list[str]:
        """Have turns so much later, one after the other; the models that were asked for since."""
        before = len(self.asked_for)
        for seconds in after_s:
            self.now += seconds
            jobs = await self._bus.request_json("$JS.API.STREAM.INFO.JOBS")
            await self._jobs.turn(jobs, self.known.__contains__)
        return self.asked_for[before:]


def telling(in_flight: dict[str, int], *models: Residency) -> Any:
    """The part of a worker's presence that is read here."""
    return SimpleNamespace(in_flight=in_flight, models=models, generation=0)


@pytest.fixture
async def finder(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> Finder:
    made = Finder(bus)

    async def ask_redelivery(_: UndeliveredJobs, model: str) -> None:
        made.asked_for.append(model)

    monkeypatch.setattr(UndeliveredJobs, "ask_redelivery", ask_redelivery)
    return made


async def test_a_job_that_waits_where_no_consumer_is_is_looked_for_by_the_second_turn(
    ledger: Ledger,
    finder: Finder,
) -> None:
    await ledger.submit("half", floats(1.0))
    assert await finder.turns(WAITED_S + 1) == []
    assert await finder.turns(1.0, 1.0) == ["half", "half"], "until it is found"


async def test_the_first_are_those_behind_the_jobs_that_are_known(
    ledger: Ledger,
    finder: Finder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(undelivered, "MAX_READ", 2)
    finder.known = {await ledger.submit("other", floats(1.0)) for _ in range(3)}
    await ledger.submit("half", floats(1.0))
    await ledger.submit("other", floats(1.0))
    assert await finder.turns(WAITED_S + 1) == [], "two at a turn"
    assert await finder.turns(1.0, 1.0) == ["half"]
    assert await finder.turns(1.0) == ["half", "other"], "from there on"
    finder.begin()
    finder.known.clear()
    assert await finder.turns(1.0, 1.0) == ["other"], "from the first on"


async def test_one_that_was_delivered_and_that_no_worker_tells_of_is_looked_for(
    bus: Bus,
    ledger: Ledger,
    finder: Finder,
) -> None:
    await ledger.submit("half", floats(1.0))
    came: list[object] = []
    puller = await bus.pull((await delivery.find(bus, "half", "mid", 0)).name, came.append)
    puller.ask(1)
    while not came:
        await bus.flush()
    await puller.close()
    assert await finder.turns(WAITED_S + 1, 1.0) == ["half"]
    finder.workers = [telling({"half": 1})]
    assert await finder.turns(1.0, 1.0) == [], "its worker has it"
    resident = Residency(model="half", version=1, state="ready")
    finder.workers = [telling({f"m{number}": 1 for number in range(MOST_COUNTED)}, resident)]
    assert await finder.turns(1.0, 1.0) == [], "a worker with jobs of very many models tells of some"
    assert await finder.turns(WAITED_BUSY_S, 1.0, 1.0) == ["half"], "for so long, then not again so soon"


async def test_what_waits_at_a_consumer_is_looked_for_where_nobody_asks_of_it(
    bus: Bus,
    ledger: Ledger,
    finder: Finder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(undelivered, "MAX_PENDING", 1)
    for model in ("half", "other"):
        await delivery.find(bus, model, "mid", 0)
        await ledger.submit(model, floats(1.0))
    assert await finder.turns(WAITED_S + 1, 1.0) == ["half"], "few at a time"
    assert await finder.turns(1.0) == ["other"], "so that a worker with many queues is not asked to read them all again"
    assert await finder.turns(1.0) == []


async def test_a_message_that_came_after_its_jobs_end_is_removed(bus: Bus, ledger: Ledger, finder: Finder) -> None:
    """A gateway writes again whose answer was lost; meanwhile the job has ended, and its first message has gone."""
    late, waiting = [await ledger.submit("half", floats(1.0)) for _ in range(2)]
    records = Records(bus)
    found = await records.find(late)
    assert found is not None
    await records.write(life.cancelled(found.record, now=finder.now), expect=0)
    assert await finder.turns(WAITED_S + 1, 1.0) == [], "it is no job that waits"
    assert await records.queued(late) is None
    assert await finder.turns(1.0, 1.0) == ["half"], "the next one is"
    assert await records.queued(waiting) is not None
