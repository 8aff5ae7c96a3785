import msgspec
import pytest
from msgspec.structs import replace

from signalbox.jobs import life
from signalbox.program.errors import Conflict
from signalbox.wire.messages import Job, Newer, PayloadRef, Record, State, decode, encode, header

JOB = Job(
    id="j",
    model="m",
    version=3,
    signature="s",
    priority="hi",
    account_id="k",
    created_at=1.0,
    deadline_at=901.0,
    outputs=("y",),
    style="columnar",
    trace="t",
)
REF = PayloadRef(subject="pl.a.j.in", size=9, chunks=1, first_seq=4, sha256="aa")


def test_a_newer_document_is_told_from_a_broken_one() -> None:
    with pytest.raises(Newer):
        decode(Job, header(replace(JOB, v=2)))
    with pytest.raises(msgspec.MsgspecError) as broken:
        decode(Job, b"{}")
    assert not isinstance(broken.value, Newer)


def test_fields_a_newer_program_added_are_read_past() -> None:
    assert decode(Job, encode(JOB).replace(b"{", b'{"colour":["blue"],', 1)) == JOB


def test_what_is_no_utf_8_is_a_broken_document_and_no_crash() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(Job, encode(JOB).replace(b'"m"', b'"\xff"'))


def test_a_record_queues_its_job_again_with_all_that_a_run_needs() -> None:
    record = life.first_record(replace(JOB, ref=REF, size_bytes=9), State.QUEUED)
    again = life.queued_again(decode(Record, header(record)))
    assert again == replace(JOB, ref=REF, size_bytes=9)


def test_a_record_without_a_stored_input_cannot_queue_its_job_again() -> None:
    with pytest.raises(Conflict):
        life.queued_again(life.first_record(JOB, State.QUEUED))
