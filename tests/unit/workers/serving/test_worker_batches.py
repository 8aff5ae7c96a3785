from dataclasses import dataclass, field
from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from signalbox.wire.messages import Job
from signalbox.wire.modeldocs import Batching, Model, Version
from signalbox.wire.names import PRIORITIES, Priority
from signalbox.wire.workerdocs import Joining
from workers.serving.batches import BatchQueue
from workers.statistics.joinings import Joinings

ids = count()


@dataclass
class Held:
    job: Job
    arrived_s: float = 0.0
    is_alone: bool = False
    order: int = field(default_factory=lambda: next(ids))


def job(*, priority: Priority = "mid", key: str = "k", rows: int = 1, version: int = 1, size: int = 10) -> Job:
    return Job(
        id=f"job-{next(ids)}",
        model="m",
        version=version,
        signature="s",
        priority=priority,
        account_id="k",
        batch_key=key,
        rows=rows,
        created_at=0.0,
        deadline_at=1.0,
        size_bytes=size,
    )


def queue(
    *held: Held,
    max_size: int = 4,
    max_delay_ms: float = 0.0,
    max_bytes: int = 10_000,
    rows_independent: bool = True,
) -> BatchQueue[Held]:
    batching = Batching(max_size=max_size, max_delay_ms=max_delay_ms, rows_independent=rows_independent)
    versions = tuple(Version(version=number, path="/m", joined=("s",)) for number in (1, 2))
    model = Model(name="m", versions=versions, batching=batching)
    made: BatchQueue[Held] = BatchQueue(model, Joinings().may_join, max_bytes=max_bytes)
    for each in held:
        made.add(each)
    return made


def test_compatible_jobs_leave_together_in_order_of_arrival() -> None:
    held = [Held(job()) for _ in range(3)]
    assert queue(*held).take() == held


def test_a_batch_holds_at_most_max_size_rows() -> None:
    held = [Held(job(rows=2)) for _ in range(3)]
    made = queue(*held, max_size=4)
    assert made.take() == held[:2]
    assert made.take() == held[2:]
    assert len(made) == 0


def test_a_small_job_does_not_slip_past_a_large_one_that_no_longer_fits() -> None:
    held = [Held(job(rows=3)), Held(job(rows=3)), Held(job(rows=1))]
    made = queue(*held, max_size=4)
    assert made.take() == held[:1]
    assert made.take() == held[1:]


def test_a_job_larger_than_a_batch_leaves_alone() -> None:
    held = [Held(job(rows=9)), Held(job())]
    made = queue(*held, max_size=4)
    assert made.take() == held[:1]


def test_more_important_jobs_leave_first_and_take_compatible_others_along() -> None:
    low, high = Held(job(priority="lo")), Held(job(priority="hi"))
    assert queue(low, high).take() == [high, low]


def test_other_versions_and_keys_wait_for_their_own_batch_and_keep_their_place() -> None:
    first, other, second = Held(job()), Held(job(version=2)), Held(job())
    made = queue(first, other, second)
    assert made.take() == [first, second]
    assert made.take() == [other]


def test_a_job_without_batch_key_or_with_a_strike_runs_alone_and_at_once() -> None:
    single, struck, plain = Held(job(key="")), Held(job(), is_alone=True), Held(job())
    made = queue(single, struck, plain, max_delay_ms=50.0)
    assert made.take() == [single]
    assert made.take() == [struck]
    assert made.head(0.0) == (plain, 0.05)


def test_jobs_of_a_model_whose_rows_may_depend_on_one_another_run_alone_at_once_and_with_all_their_rows() -> None:
    assert not Batching().rows_independent
    few, many = Held(job()), Held(job(rows=9))
    made = queue(few, many, max_delay_ms=50.0, rows_independent=False)
    assert made.head(0.0) == (few, 0.0)
    assert (made.take(), made.take(), made.take()) == ([few], [many], [])


def test_jobs_are_joined_only_of_signatures_that_were_found_equal_for_these_files() -> None:
    joinings = Joinings()
    version = Version(version=1, path="/m", digest="d")
    asking = Model(name="m", versions=(version,), batching=Batching(rows_independent=True))

    def joined(model: Model) -> list[str]:
        return [name for name in ("s", "t") if joinings.may_join(model, 1, name)]

    def saying(signatures: tuple[str, ...] | None, digest: str = "d") -> Model:
        return replace(asking, versions=(replace(version, joined=signatures, digest=digest),))

    assert (joinings.is_due(asking, version), joined(asking)) == (True, [])
    assert joined(saying(("t",))) == ["t"], "another worker has tried"
    joinings.note(("m", 1), Joining(joined=("s",), digest="d"))
    assert (joinings.is_due(asking, version), joined(asking)) == (False, ["s"])
    assert joined(saying(None, digest="other")) == []
    assert joined(saying(())) == [], "what is decided for all comes first"
    assert joined(replace(asking, batching=Batching())) == [], "nobody asks any more"
    assert joined(replace(asking, batching=Batching(rows_independent=True, max_size=1))) == []
    assert joinings.unreported(("m", 1), lambda _: asking) == Joining(joined=("s",), digest="d")
    assert joinings.unreported(("m", 1), lambda _: saying(("s",))) is None
    joinings.note(("m", 1), Joining(differs="much", digest="d"))
    joinings.retry_untried("m")
    assert not joinings.is_due(asking, version)
    joinings.note(("m", 1), Joining(untried="died", digest="d"))
    joinings.retry_untried("other")
    assert not joinings.is_due(asking, version)
    joinings.retry_untried("m")
    assert joinings.is_due(asking, version), "who asks again is tried again"


def test_a_batch_waits_for_company_until_the_delay_of_its_first_job_has_passed() -> None:
    held = [Held(job(), arrived_s=10.0), Held(job(), arrived_s=10.04)]
    made = queue(*held, max_delay_ms=50.0)
    assert made.head(10.04) == (held[0], 10.05 - 10.04)
    assert made.head(10.06) == (held[0], 0.0)
    assert made.take() == held


def test_a_full_batch_does_not_wait() -> None:
    held = [Held(job()) for _ in range(4)]
    assert queue(*held, max_delay_ms=50.0).take() == held


def test_a_batch_is_bounded_in_bytes() -> None:
    held = [Held(job(size=600)) for _ in range(3)]
    assert queue(*held, max_bytes=1_000).take() == held[:1]


def test_a_removed_job_leaves_no_trace() -> None:
    held = [Held(job()), Held(job())]
    made = queue(*held, max_size=2, max_delay_ms=50.0)
    assert made.remove(held[0].job.id) is held[0]
    assert made.remove(held[0].job.id) is None
    assert made.head(0.0) == (held[1], 0.05)
    assert made.clear() == held[1:]
    assert made.head(0.0) is None


jobs = st.builds(
    job,
    priority=st.sampled_from(PRIORITIES),
    key=st.sampled_from(["", "a", "b"]),
    rows=st.integers(1, 5),
    version=st.integers(1, 2),
)


@given(st.lists(jobs, max_size=30), st.integers(1, 8))
def test_every_job_leaves_exactly_once_and_never_in_bad_company(given_jobs: list[Job], size: int) -> None:
    made = queue(*(Held(each) for each in given_jobs), max_size=size)
    left: list[Held] = []
    while batch := made.take():
        assert len({(h.job.version, h.job.batch_key) for h in batch}) == 1
        assert sum(h.job.rows for h in batch) <= size or len(batch) == 1
        left += batch
    assert sorted(h.job.id for h in left) == sorted(each.id for each in given_jobs)
    for priority in PRIORITIES:
        for key in ("a", "b"):
            same = [
                h.order for h in left if h.job.priority == priority and h.job.batch_key == key and h.job.version == 1
            ]
            assert same == sorted(same)
