"""When a version that is not in memory can run: what is left of its fetch, and its load, at the rates measured."""

import pytest
from msgspec.structs import replace

from signalbox.jobs.forecast import starts_in
from signalbox.wire.modeldocs import Model, Version
from signalbox.wire.workerdocs import Device, Residency, Run, Worker

NOW = 1_000.0
MB = 10**6
FAR = Version(version=1, path="s3://shop/far/1", repository="shop", size_bytes=100 * MB)
MODEL = Model(name="far", versions=(FAR,))


def worker(name: str = "w1", *, fetch: Residency | None = None, host: str = "h", **more: object) -> Worker:
    """A worker that holds a device of its own and has nothing in memory."""
    known: dict[str, object] = {
        "id": name,
        "boot": "b",
        "host": host,
        "pid": 1,
        "state": "ready",
        "started_at": 0.0,
        "device": Device(id=f"CPU-{name}", kind="cpu", name="cpu"),
        "beat_at": NOW,
        "token": 7,
        "models": () if fetch is None else (fetch,),
    }
    return Worker(**{**known, **more})  # type: ignore[arg-type]


def fetching(done: int = 0, of: int = 0, rate: float = 0.0, error: str = "") -> Residency:
    return Residency(
        model="far",
        version=1,
        state="fetching",
        error=error,
        fetched_bytes=done * MB,
        fetch_bytes=of * MB,
        fetch_rate=rate * MB,
    )


def wait(*workers: Worker, homes: int = 1, model: Model = MODEL, ahead: int | None = 0) -> float | None:
    """What a job is told whose model has its home at the first workers."""
    return starts_in(model, 1, workers[:homes], ahead, NOW, fleet=workers).wait_s


def test_what_is_left_of_a_fetch_comes_at_its_rate_and_then_the_version_is_loaded() -> None:
    coming = fetching(41, of=100, rate=10)
    assert wait(worker(fetch=coming, load_s={"far": 2.0})) == pytest.approx(5.9 + 2.0)
    assert wait(worker(fetch=coming, load_rate=50.0 * MB)) == pytest.approx(5.9 + 2.0), "as its size says"
    assert wait(worker(fetch=coming)) == pytest.approx(5.9), "of a load that nobody has measured nothing is made up"


def test_a_fetch_that_has_just_begun_comes_at_the_usual_rate_of_its_repository() -> None:
    known = {"shop": 20.0 * MB, "other": 1.0 * MB}
    assert wait(worker(fetch=fetching(), fetch_rates=known)) == pytest.approx(5.0), "its size is the catalog's"
    assert wait(worker(fetch=fetching(10, of=90), fetch_rates=known)) == pytest.approx(4.0)
    assert wait(worker(fetch=fetching(10, of=90))) is None


def test_of_a_version_that_is_nowhere_the_fleet_s_rates_say_when_it_can_run() -> None:
    others = (worker("w2", fetch_rates={"shop": 10.0 * MB}), worker("w3", fetch_rates={"shop": 30.0 * MB}))
    loads = worker("w4", load_s={"far": 3.0})
    assert wait(worker()) is None, "nobody has measured anything"
    assert wait(worker(), *others) == pytest.approx(5.0)
    assert wait(worker(), *others, loads) == pytest.approx(8.0)
    assert wait(worker(fetch_rates={"shop": 100.0 * MB}), *others, loads) == pytest.approx(4.0), "its own is nearer"


def test_a_version_whose_files_lie_here_is_loaded_only_and_not_told_of_where_no_load_was_measured() -> None:
    here = replace(MODEL, versions=(replace(FAR, path="/models/far/1"),))
    assert wait(worker(), model=here) is None
    assert wait(worker(fetch_rates={"shop": 1.0}), model=here) is None
    assert wait(worker(load_s={"far": 3.0}), model=here) == pytest.approx(3.0)
    for state in ("failed", "loading"):
        one = Residency(model="far", version=1, state=state)
        assert wait(worker(models=(one,), load_s={"far": 3.0}), model=here) is None


def test_a_fetch_goes_on_beside_runs_and_a_load_does_not() -> None:
    at_it = Run(activity="computing", model="slow", version=1, since=NOW - 1.0, expected_s=9.0)
    busy = worker(fetch=fetching(50, of=100, rate=10), load_s={"far": 1.0}, run=at_it)
    assert wait(busy) == pytest.approx(8.0 + 1.0), "the run is the longer one"
    assert wait(replace(busy, models=(fetching(0, of=100, rate=10),))) == pytest.approx(10.0 + 1.0)
    assert wait(replace(busy, waiting={"far": 1}, rates={"far": 1.0}), ahead=None) == pytest.approx(9.0)


def test_a_fetch_that_cannot_go_on_ends_at_an_unknown_time_unless_another_worker_of_the_host_goes_on_with_it() -> None:
    stuck = worker(fetch=fetching(41, of=100, rate=10, error="The store is away."), fetch_rates={"shop": 10.0 * MB})
    assert wait(stuck) is None
    helped = fetching(50, of=100, rate=10)
    assert wait(stuck, worker("w2", fetch=helped)) == pytest.approx(5.0)
    assert wait(stuck, worker("w2", fetch=helped, host="elsewhere")) is None
    assert wait(worker(fetch=fetching(41, of=100, rate=0.0001))) is None, "it stands still"


def test_a_device_that_nobody_holds_is_taken_at_once_and_one_that_another_holds_is_not() -> None:
    idle = worker(token=0, fetch=fetching(50, of=100, rate=10))
    assert wait(idle) == pytest.approx(5.0)
    holder = replace(worker("w2"), device=idle.device)
    assert wait(idle, holder) is None
    assert wait(idle, holder, homes=2) == pytest.approx(5.0), "the holder, whose host is the same"


def test_jobs_before_it_are_counted_after_the_load() -> None:
    coming = worker(fetch=fetching(41, of=100, rate=10), load_s={"far": 2.0}, rates={"far": 10.0})
    assert wait(coming, ahead=10) == pytest.approx(8.9)
