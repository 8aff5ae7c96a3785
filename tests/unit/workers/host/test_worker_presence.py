"""A worker's presence has a bound, and so has whatever the worker keeps per model it has ever seen."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from signalbox.wire.messages import encode
from signalbox.wire.workerdocs import Device, Residency, Run, Worker
from workers.host.presence import LIMIT_BYTES, fitting
from workers.statistics.batchlimits import BatchLimits
from workers.statistics.lru import Lru
from workers.statistics.worker import MOST_MODELS, MOST_REPORTED, Statistics

MANY = 5_000
NAMES = st.integers(0, MANY).map(lambda n: f"{n:0100}")


def worker(**fields: object) -> Worker:
    known = Worker(
        id="w" * 64,
        boot="b" * 32,
        host="h" * 64,
        pid=1,
        state="ready",
        started_at=1.0,
        beat_at=2.0,
        device=Device(id="GPU-1", kind="nvidia", name="card"),
        running=tuple(f"{n:036}" for n in range(32)),
        run=Run(activity="computing", model="m" * 100, version=1, since=1.0, jobs=tuple(f"{n:036}" for n in range(32))),
    )
    return replace(known, **fields)


@given(
    st.dictionaries(NAMES, st.floats(0, 1e9), max_size=3).flatmap(
        lambda some: st.integers(0, MANY).map(lambda n: some | {f"m{i:0100}": float(i) for i in range(n)})
    ),
    st.integers(0, MANY),
    st.integers(0, 3_000),
    st.sampled_from(["ready", "failed", "unseen"]),
)
def test_a_document_of_any_length_fits_and_tells_first_what_serves(
    rates: dict[str, float], waiting: int, resident: int, state: str
) -> None:
    models = (
        *(
            Residency(
                model=f"r{n:0100}",
                version=2**60,
                state=state,
                size_bytes=2**40,
                error="e" * 2000 if state == "failed" else "",
            )
            for n in range(resident)
        ),
        Residency(model="used", version=1, state="ready"),
        Residency(model="new", version=2, state="loading"),
    )
    fetch_rates = {f"r{n:0100}": 1e9 / 3 for n in range(32)}
    waits = {f"w{n}": n for n in range(waiting)}
    whole = worker(rates=rates, load_s=rates, fetch_rates=fetch_rates, waiting=waits, models=models)
    reported = fitting(whole)
    assert len(encode(reported)) <= LIMIT_BYTES
    assert "loading" in {r.state for r in reported.models}
    assert reported.running == whole.running
    if state != "ready":
        assert "used" in {r.model for r in reported.models}


def test_a_document_that_fits_is_left_alone() -> None:
    whole = worker(models=(Residency(model="a", version=1, state="failed", error="e" * 2000),))
    assert fitting(whole) is whole


def test_rates_are_of_the_models_that_ran_last() -> None:
    statistics = Statistics()
    for n in range(MANY):
        statistics.ran(f"m{n}", jobs=1, seconds=0.5, size_bytes=10)
    statistics.ran("m4000", jobs=1, seconds=0.5, size_bytes=10)
    rates = statistics.rates()
    assert list(rates)[:2] == ["m4000", f"m{MANY - 1}"]
    assert len(rates) == MOST_REPORTED
    statistics.loaded("m1", 2.0)
    statistics.loaded("m0", 1.25)
    assert list(statistics.usual_loads().items()) == [("m0", 1.25), ("m1", 2.0)]
    assert f"m{MANY - MOST_MODELS - 1}" not in statistics.run_s
    assert statistics.run_s["m4000"] == 0.5


def test_a_run_of_minutes_has_a_rate() -> None:
    statistics = Statistics()
    for model, seconds in (("long", 250.0), ("longer", 36_000.0), ("quick", 0.003)):
        statistics.ran(model, jobs=1, seconds=seconds, size_bytes=10)
    assert statistics.rates() == {"long": 0.004, "longer": 2.78e-05, "quick": 333.0}


def test_batch_limits_have_a_bound() -> None:
    batch_limits = BatchLimits()
    for n in range(MANY):
        batch_limits.failed((f"m{n}", 1, "x"), 8)
    assert len(batch_limits) < MANY
    assert batch_limits.rows((f"m{MANY - 1}", 1, "x")) == 4


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans())))
def test_what_was_used_least_recently_leaves(acts: list[tuple[str, bool]]) -> None:
    made: Lru[str, int] = Lru(3)
    order: list[str] = []
    for n, (key, is_write) in enumerate(acts):
        order = [k for k in order if k != key]
        if is_write:
            made[key] = n
            order = [*order, key][-3:]
        else:
            made.pop(key, None)
    assert list(made) == order
