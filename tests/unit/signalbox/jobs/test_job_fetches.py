"""What workers tell of fetches, put together: of a host one worker brings the files, and the others wait for it."""

import pytest

from signalbox.jobs.fetches import Fetch, fetch_of, under_way
from signalbox.jobs.waiting import Decision, hindrance
from signalbox.program.words import bytes_of
from signalbox.wire.workerdocs import Device, Residency, Worker


def worker(name: str, host: str, *told: Residency) -> Worker:
    device = Device(id=name, kind="cpu", name="cpu")
    return Worker(
        id=name, boot="b", host=host, pid=1, state="ready", started_at=0.0, beat_at=0.0, device=device, models=told
    )


def coming(done: int = 0, of: int = 0, error: str = "", version: int = 1) -> Residency:
    return Residency(
        model="far", version=version, state="fetching", fetched_bytes=done, fetch_bytes=of, error=error, fetch_rate=5.0
    )


def test_a_version_that_comes_to_a_host_is_one_fetch_that_of_the_worker_that_brings_it() -> None:
    fleet = [
        worker("a", "h1", coming()),
        worker("b", "h1", coming(40, of=100), coming(version=2)),
        worker("c", "h2", coming(70, of=100, error="The disk is full.")),
        worker("d", "h3", Residency(model="far", version=1, state="ready", size_bytes=7)),
    ]
    assert under_way(fleet) == [
        Fetch("far", 1, "h1", 40, 100, 5.0),
        Fetch("far", 2, "h1", rate=5.0),
        Fetch("far", 1, "h2", 70, 100, 5.0, fault="The disk is full."),
    ]
    assert fetch_of("far", 1, fleet) == Fetch("far", 1, "h1", 40, 100, 5.0), "it is what jobs wait for"
    assert fetch_of("far", 3, fleet) is None


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (coming(41_000_000, of=100_000_000), "version 1 of far is being fetched: 41 of 100 MB"),
        (coming(), "version 1 of far is being fetched"),
        (coming(7, of=8, error="The store is away."), "version 1 of far cannot be fetched now: the store is away"),
        (
            coming(error="The disk cannot be written: it is full. Its folder is /var/cache."),
            "version 1 of far cannot be fetched now: the disk cannot be written: it is full",
        ),
    ],
)
def test_a_job_s_reason_says_how_far_the_fetch_is(told: Residency, words: str) -> None:
    fleet = [worker("a", "h", told)]
    assert hindrance("far", 1, Decision(is_enabled=True, replicas=1, is_paused=False), fleet) == words


@pytest.mark.parametrize(
    ("done", "size", "words"),
    [
        (0, 7, "0 of 7 bytes"),
        (41_300_000, 100_000_000, "41 of 100 MB"),
        (999, 7_004, "1 of 7 kB"),
        (250, 7_504, "0.2 of 7.5 kB"),
        (9_970_000, 999_999_999, "10 of 1000 MB"),
        (1, 2_500_000_000, "0 of 2.5 GB"),
    ],
)
def test_how_much_has_come_is_said_in_the_unit_of_the_whole(done: int, size: int, words: str) -> None:
    assert bytes_of(done, size) == words
