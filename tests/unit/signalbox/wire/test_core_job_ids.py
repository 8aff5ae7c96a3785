"""Ids of jobs: each names a slot, and records of synchronous calls, whose ids no others have, lie in it."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.wire import jobids, names
from signalbox.wire.jobids import JobIds

INSTANTS = st.floats(min_value=1.7e9, max_value=4e9)
NUMBERS = st.integers(min_value=0, max_value=2**128 - 1)


@pytest.mark.parametrize("is_short_lived", [False, True])
@given(now=INSTANTS, chance=NUMBERS)
def test_an_id_is_a_uuid_and_its_job_lies_in_its_slot(now: float, chance: int, is_short_lived: bool) -> None:
    job_id = jobids.new_job_id(now, chance, is_short_lived=is_short_lived)
    read = uuid.UUID(job_id)
    assert (str(read), read.version, read.variant) == (job_id, 8 if is_short_lived else 7, uuid.RFC_4122)
    assert jobids.JOB_ID.match(job_id)
    assert jobids.is_short_lived(job_id) == is_short_lived
    slot = jobids.slot_of(job_id)
    assert names.job("m.1", "hi", "acme corp.", job_id) == f"jobs.m=2E1.hi.acme=20corp=2E.{slot}.{job_id}"
    assert names.slot_of_record(names.state(job_id)) == (slot if is_short_lived else "")
    assert names.state(job_id) == (f"st.{slot}.{job_id}" if is_short_lived else f"st.{job_id}")
    assert names.slot(slot) == f"st.{slot}.*"


@given(now=INSTANTS, later_s=st.floats(min_value=0, max_value=1e6), chance=NUMBERS)
def test_slots_are_in_order_and_of_a_second(now: float, later_s: float, chance: int) -> None:
    first, second = (jobids.slot_of(jobids.new_job_id(at, chance)) for at in (now, now + later_s))
    assert first <= second
    assert (first != second) or later_s < 1.025
    assert (first == second) or later_s > 0.0


@given(now=INSTANTS, chance=NUMBERS, many=st.integers(min_value=0, max_value=16))
def test_where_many_are_queued_slots_are_longer(now: float, chance: int, many: int) -> None:
    queued = many * jobids.MANY_QUEUED
    slot_s = jobids.slot_s(queued)
    assert slot_s == pytest.approx(1.024 * [1, 2, 4, 4, 8][min(many, 4)])
    job_id = jobids.new_job_id(now, chance, queued=queued)
    began_at = jobids.time_of_slot(jobids.slot_of(job_id))
    assert 0 <= now - began_at < slot_s + 0.001
    assert round(began_at * 1000) % round(slot_s * 1000) == 0
    read, alone = uuid.UUID(job_id), uuid.UUID(jobids.new_job_id(now, chance))
    assert read.int & (1 << 80) - 1 == alone.int & (1 << 80) - 1
    assert (read == alone) or queued


@pytest.mark.parametrize("many", [1, 2, 4, 8])
def test_where_many_are_queued_the_ids_of_a_slot_are_counted(many: int) -> None:
    now = 1.8e9
    ids = JobIds(lambda: now, lambda: many * jobids.MANY_QUEUED)
    given = [ids.new(is_short_lived=number % 2 == 1) for number in range(100)]
    assert {jobids.is_short_lived(job_id) for job_id in given[::2]} == {False}
    assert {jobids.is_short_lived(job_id) for job_id in given[1::2]} == {True}
    random = {job_id[15:] for job_id in given}
    assert sorted(random) == [job_id[15:] for job_id in given], "in order, none twice"
    assert len({text[:-5] for text in random}) == 1
    now += jobids.slot_s(many * jobids.MANY_QUEUED)
    assert jobids.slot_of(ids.new()) > jobids.slot_of(given[-1])
    assert ids.new()[15:-5] not in {text[:-5] for text in random}, "from another number on"
    assert JobIds(lambda: 1.8e9, lambda: many * jobids.MANY_QUEUED).new()[15:-5] not in {text[:-5] for text in random}


def test_where_few_are_queued_ids_are_random() -> None:
    ids = JobIds(lambda: 1.8e9, lambda: jobids.MANY_QUEUED - 1)
    assert len({ids.new()[15:-5] for _ in range(100)}) == 100


def test_where_a_count_is_used_up_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobids, "_COUNT_BITS", 2)
    ids = JobIds(lambda: 1.8e9, lambda: jobids.MANY_QUEUED)
    given = [ids.new() for _ in range(12)]
    assert len(set(given)) == 12
    assert [int(job_id[-1], 16) % 4 for job_id in given] == [0, 1, 2, 3] * 3
    assert len({job_id[:-1] for job_id in given}) == 3


@given(chance=NUMBERS)
def test_random_ids_name_a_slot_too_and_their_records_none(chance: int) -> None:
    for version in (4, 5):
        job_id = str(uuid.UUID(int=chance, version=version))
        assert len(jobids.slot_of(job_id)) == 10
        assert not jobids.is_short_lived(job_id)
        assert names.state(job_id) == f"st.{job_id}"


@pytest.mark.parametrize("job_id", ["", "8", "j" * 14 + "8", "0000000-ZZZZZ-8000-8000-000000000000"])
def test_the_record_of_what_is_no_id_of_ours_lies_in_no_slot(job_id: str) -> None:
    assert names.state(job_id) == f"st.{job_id}"


@pytest.mark.parametrize("queued", [0, jobids.MANY_QUEUED, 4 * jobids.MANY_QUEUED])
@given(now=INSTANTS, one=NUMBERS, other=NUMBERS)
def test_what_is_random_in_an_id_is_in_it(now: float, one: int, other: int, queued: int) -> None:
    used = (one ^ other) & ((1 << 62) - 1 | 0xFFF << 80)
    same = jobids.new_job_id(now, one, queued=queued) == jobids.new_job_id(now, other, queued=queued)
    assert same == (used == 0)
