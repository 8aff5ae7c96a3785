"""Ids of jobs: each names a slot, and records of synchronous calls, whose ids no others have, lie in it."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.wire import names

INSTANTS = st.floats(min_value=1.7e9, max_value=4e9)
NUMBERS = st.integers(min_value=0, max_value=2**128 - 1)


@pytest.mark.parametrize("is_short_lived", [False, True])
@given(now=INSTANTS, chance=NUMBERS)
def test_an_id_is_a_uuid_and_its_job_lies_in_its_slot(now: float, chance: int, is_short_lived: bool) -> None:
    job_id = names.new_job_id(now, chance, is_short_lived=is_short_lived)
    read = uuid.UUID(job_id)
    assert (str(read), read.version, read.variant) == (job_id, 8 if is_short_lived else 7, uuid.RFC_4122)
    assert names.JOB_ID.match(job_id)
    assert names.is_short_lived(job_id) == is_short_lived
    slot = names.slot_of(job_id)
    assert names.job("m.1", "hi", "acme corp.", job_id) == f"jobs.m=2E1.hi.acme=20corp=2E.{slot}.{job_id}"
    assert names.slot_of_record(names.state(job_id)) == (slot if is_short_lived else "")
    assert names.state(job_id) == (f"st.{slot}.{job_id}" if is_short_lived else f"st.{job_id}")
    assert names.slot(slot) == f"st.{slot}.*"


@given(now=INSTANTS, later_s=st.floats(min_value=0, max_value=1e6), chance=NUMBERS)
def test_slots_are_in_order_and_of_a_second(now: float, later_s: float, chance: int) -> None:
    first, second = (names.slot_of(names.new_job_id(at, chance)) for at in (now, now + later_s))
    assert first <= second
    assert (first != second) or later_s < 1.025
    assert (first == second) or later_s > 0.0


@given(now=INSTANTS, chance=NUMBERS, many=st.integers(min_value=0, max_value=8))
def test_where_many_are_queued_slots_are_longer(now: float, chance: int, many: int) -> None:
    queued = many * names.MANY_QUEUED
    slot_s = names.slot_s(queued)
    assert slot_s == pytest.approx(1.024 * [1, 2, 4][min(many, 2)])
    job_id = names.new_job_id(now, chance, queued=queued)
    began_at = names.time_of_slot(names.slot_of(job_id))
    assert 0 <= now - began_at < slot_s + 0.001
    assert round(began_at * 1000) % round(slot_s * 1000) == 0
    read, alone = uuid.UUID(job_id), uuid.UUID(names.new_job_id(now, chance))
    assert read.int & (1 << 64) - 1 == alone.int & (1 << 64) - 1
    assert (read == alone) or queued


@given(now=INSTANTS, later_s=st.floats(min_value=0, max_value=10), one=NUMBERS, other=NUMBERS)
def test_where_many_are_queued_ids_are_in_the_order_of_their_time(
    now: float, later_s: float, one: int, other: int
) -> None:
    queued = 2 * names.MANY_QUEUED
    first, second = (names.new_job_id(at, chance, queued=queued) for at, chance in ((now, one), (now + later_s, other)))
    assert first[:18] <= second[:18], "within a slot too"
    within_ms = int(first[15:18], 16)
    assert int(first[:8] + first[9:13], 16) + within_ms == int(now * 1000)
    assert uuid.UUID(first).version == 7


@given(chance=NUMBERS)
def test_random_ids_name_a_slot_too_and_their_records_none(chance: int) -> None:
    for version in (4, 5):
        job_id = str(uuid.UUID(int=chance, version=version))
        assert len(names.slot_of(job_id)) == 10
        assert not names.is_short_lived(job_id)
        assert names.state(job_id) == f"st.{job_id}"


@pytest.mark.parametrize("job_id", ["", "8", "j" * 14 + "8", "0000000-ZZZZZ-8000-8000-000000000000"])
def test_the_record_of_what_is_no_id_of_ours_lies_in_no_slot(job_id: str) -> None:
    assert names.state(job_id) == f"st.{job_id}"


@pytest.mark.parametrize(("queued", "bits"), [(0, 74), (names.MANY_QUEUED, 63), (2 * names.MANY_QUEUED, 62)])
@given(now=INSTANTS, one=NUMBERS, other=NUMBERS)
def test_what_is_random_in_an_id_is_in_it(now: float, one: int, other: int, queued: int, bits: int) -> None:
    used = (one ^ other) & ((1 << 62) - 1 | ((1 << bits - 62) - 1) << 80)
    same = names.new_job_id(now, one, queued=queued) == names.new_job_id(now, other, queued=queued)
    assert same == (used == 0)
