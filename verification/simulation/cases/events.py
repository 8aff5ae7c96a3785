"""Core messages, republished changes, and what one stream reads from another."""

import pytest

from signalbox.bus.table import Table, put, remove
from signalbox.program.errors import Ambiguous, Unavailable
from signalbox.wire.names import Bucket, Header, Stream, event_of_key
from signalbox.wire.steering import Desired
from verification.simulation.cases.rig import CaseRig, case, get, receive, until


@case
async def a_request_without_a_responder_is_refused_at_once(rig: CaseRig) -> None:
    bus = await rig.bus()
    with pytest.raises(Unavailable) as error:
        await bus.request(f"cancel.{rig.id}", b"?")
    assert not isinstance(error.value, Ambiguous)


@case
async def wildcards_receive_what_they_should(rig: CaseRig) -> None:
    bus = await rig.bus()
    everything = await receive(bus, f"p.{rig.id}.>")
    one_deep = await receive(bus, f"p.{rig.id}.*")
    exact = await receive(bus, f"p.{rig.id}.a")
    middle = await receive(bus, f"p.*.a.{rig.id}")
    for subject in (f"p.{rig.id}.a", f"p.{rig.id}.a.b", f"p.{rig.id}", f"p.x.a.{rig.id}"):
        await bus.publish(subject, subject.encode())
    await middle.until(1)
    assert [message.subject for message in everything.all] == [f"p.{rig.id}.a", f"p.{rig.id}.a.b"]
    assert [message.subject for message in one_deep.all] == [f"p.{rig.id}.a"]
    assert [message.subject for message in exact.all] == [f"p.{rig.id}.a"]
    assert [message.subject for message in middle.all] == [f"p.x.a.{rig.id}"]


@case
async def a_change_of_a_bucket_is_told_with_its_document(rig: CaseRig) -> None:
    bus = await rig.bus()
    events = await receive(bus, f"evt.kv.models.{rig.id}")
    first = await bus.write(f"$KV.models.{rig.id}", b"one", headers={"A": "b"})
    second = await bus.write(f"$KV.models.{rig.id}", b"two")
    reported = await events.until(2)
    assert [message.data for message in reported] == [b"one", b"two"]
    headers = dict(reported[1].headers)
    stored = await get(bus, "KV_models", f"$KV.models.{rig.id}")
    assert headers.pop(Header.TIME_STAMP)[:19] <= "9999"
    assert headers == {
        "Nats-Stream": "KV_models",
        "Nats-Subject": f"$KV.models.{rig.id}",
        "Nats-Sequence": str(second),
        "Nats-Last-Sequence": str(first),
    }
    assert reported[0].headers["A"] == "b"
    assert reported[0].headers[Header.LAST_SEQUENCE] == "0"
    assert stored.seq == second


@case
async def records_are_told_without_their_bodies(rig: CaseRig) -> None:
    bus = await rig.bus()
    events = await receive(bus, f"evt.{rig.st()}")
    await bus.write(rig.st(), b"x" * 100, headers={"Sb-Record": "{}"})
    reported = (await events.until(1))[0]
    assert reported.data == b""
    assert reported.headers["Nats-Msg-Size"] == "100"
    assert reported.headers["Sb-Record"] == "{}"


@case
async def a_round_trip_comes_after_all_events_before_it(rig: CaseRig) -> None:
    bus, other = await rig.bus(), await rig.bus()
    events = await receive(other, f"evt.{rig.st()}")
    for number in range(20):
        await bus.write(rig.st(), b"%d" % number)
    # An event is on its way when its write is answered, but may be a moment behind the answer: hence once more.
    await events.until(20)
    await other.flush()
    assert len(events.all) == 20


@case
async def a_table_follows_a_bucket_with_removals(rig: CaseRig) -> None:
    bus, other = await rig.bus(), await rig.bus()
    await put(bus, Bucket.DESIRED, f"worker.{rig.id}-1", Desired())
    table = Table(other, Bucket.DESIRED, Desired)
    await table.start()
    try:
        assert table.get(f"worker.{rig.id}-1") is not None
        await put(bus, Bucket.DESIRED, f"worker.{rig.id}-2", Desired())
        await until(lambda: table.get(f"worker.{rig.id}-2") is not None)
        await remove(bus, Bucket.DESIRED, f"worker.{rig.id}-1")
        await until(lambda: table.get(f"worker.{rig.id}-1") is None)
        assert table.revision(f"worker.{rig.id}-1") > table.revision(f"worker.{rig.id}-2")
    finally:
        await table.close()


@case
async def the_history_of_leases_is_sourced_without_expectations(rig: CaseRig) -> None:
    bus = await rig.bus()
    subject = event_of_key(Bucket.LEASES, f"{rig.id}-g")
    first = await bus.write(rig.lease(), b"1", expect=0, ttl_s=60, headers={"A": "b"})
    await bus.write(rig.lease(), b"2", expect=first, ttl_s=60)

    async def is_there() -> bool:
        found = await bus.leader_get(Stream.EVENTS, subject)
        return found is not None and found.data == b"2"

    await until(is_there)
    ask = {"seq": 1, "next_by_subj": subject}
    answer = await bus.request_json("$JS.API.STREAM.MSG.GET.EVENTS", ask)
    assert answer["message"]["subject"] == subject
    found = await get(bus, Stream.EVENTS, subject)
    assert Header.EXPECTED_LAST not in found.headers
    source = found.headers["Nats-Stream-Source"].split(" ")
    assert source[0].startswith("KV_leases")
    assert int(source[1]) > first
