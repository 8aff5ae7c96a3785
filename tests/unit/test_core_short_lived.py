"""Ids of synchronous calls: they name the slot that their record lies in, and no other id names one."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.wire import names

INSTANTS = st.floats(min_value=1.7e9, max_value=4e9)
NUMBERS = st.integers(min_value=0, max_value=2**128 - 1)


@given(now=INSTANTS, chance=NUMBERS)
def test_an_id_is_a_uuid_and_its_record_lies_in_its_slot(now: float, chance: int) -> None:
    job_id = names.short_lived_id(now, chance)
    read = uuid.UUID(job_id)
    assert (str(read), read.version, read.variant) == (job_id, 8, uuid.RFC_4122)
    assert names.JOB_ID.match(job_id)
    slot = names.slot_of(job_id)
    assert slot == names.slot_of_record(names.state(job_id))
    assert names.state(job_id) == f"st.{slot}.{job_id}"
    assert names.slot(slot) == f"st.{slot}.*"


@given(now=INSTANTS, later_s=st.floats(min_value=0, max_value=1e6), chance=NUMBERS)
def test_slots_are_in_order_and_of_a_second(now: float, later_s: float, chance: int) -> None:
    first, second = (names.slot_of(names.short_lived_id(at, chance)) for at in (now, now + later_s))
    assert first <= second
    assert (first != second) or later_s < 1.025
    assert (first == second) or later_s > 0.0


@given(chance=NUMBERS)
def test_ids_of_other_jobs_name_no_slot(chance: int) -> None:
    for version in (4, 5):
        job_id = str(uuid.UUID(int=chance, version=version))
        assert names.slot_of(job_id) == ""
        assert names.slot_of_record(names.state(job_id)) == ""


@pytest.mark.parametrize("job_id", ["", "8", "j" * 14 + "8", "0000000-ZZZZZ-8000-8000-000000000000"])
def test_what_is_no_id_of_ours_names_no_slot(job_id: str) -> None:
    assert names.slot_of(job_id) == ""
    assert names.state(job_id) == f"st.{job_id}"


@given(now=INSTANTS, one=NUMBERS, other=NUMBERS)
def test_what_is_random_in_an_id_is_in_it(now: float, one: int, other: int) -> None:
    used = (one ^ other) & ((1 << 62) - 1 | 0xFFF << 80)
    same = names.short_lived_id(now, one) == names.short_lived_id(now, other)
    assert same == (used == 0)
