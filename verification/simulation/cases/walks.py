"""Random walks: the same seeded acts on the model and on a real server have the same outcomes, one by one."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from signalbox.bus.client import Message
from signalbox.bus.jetstream import stored_of
from signalbox.program.errors import SignalboxError
from verification.simulation.cases.rig import CaseRig, batch, consumer, pulling, raw, receive, stream

Outcome = tuple[Any, ...]
_KEYS: Final = ("a", "b", "c", "d")
_PATIENCE: Final = 1000
_LARGEST: Final = 300
"""Bytes of a message with its headers."""
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"


class Walk:
    """A stream, and one client that acts at random: on every second one as on a bucket, else as on a queue.

    A bucket has rollups, a queue has a consumer. Both at once would follow the server into corners where ours never go.
    """

    def __init__(self, rig: CaseRig, seed: int) -> None:
        self._rig = rig
        self._random = random.Random(f"walk {seed}")
        self._name = f"{rig.id}"
        self._count = 0
        self._is_bucket = seed % 2 == 0

    async def run(self, steps: int, expected: Sequence[Outcome] = ()) -> list[Outcome]:
        """What each act came to, and at last what the server told of all that.

        expected: outcomes of the same walk elsewhere; it ends at the first that differs. What a server says of its
        state may be a moment behind, so it is given time to say what is expected.
        """
        self._bus = bus = await self._rig.bus()
        chance = self._random
        await stream(
            bus,
            self._name,
            [f"{self._name}.>"],
            discard=chance.choice(["new", "old"]),
            max_msgs=chance.choice([-1, 9]),
            max_bytes=chance.choice([-1, -1, 700]),
            max_msg_size=_LARGEST,
            max_msgs_per_subject=chance.choice([-1, 1, 3]),
            allow_rollup_hdrs=self._is_bucket,
            allow_atomic=True,
            allow_direct=True,
            allow_msg_ttl=True,
            republish={"src": f"{self._name}.>", "dest": f"evt.{self._name}.>"},
        )
        await consumer(bus, "q", f"{self._name}.>", stream=self._name)
        self._puller, self._taken = await pulling(bus, "q", 0, stream=self._name)
        events = await receive(bus, f"evt.{self._name}.>")
        acts = [*[self._write] * 6, *[self._batch] * 2, self._read, self._list]
        acts += [self._purge, self._delete, self._find, self._subjects]
        if not self._is_bucket:
            acts += [*[self._pull] * 4, self._make_anew]
        outcomes: list[Outcome] = []
        for step in range(steps):
            act = chance.choice(acts)
            try:
                outcome = await act()
            except SignalboxError as error:
                outcome = (type(error).__name__, error.facts.get("err_code"))
            outcome = (act.__name__, *outcome)
            wanted = expected[step] if expected else None
            outcomes.append(await self._with_state(outcome, wanted))
            if wanted is not None and outcomes[-1] != wanted:
                raise AssertionError(f"step {step}: {outcomes[-1]}, expected {wanted}, after {outcomes[-4:-1]}")
        await events.until(len(expected) - steps if expected else 0)
        await bus.flush()
        return [*outcomes, *(_reported(message) for message in events.all)]

    async def _with_state(self, outcome: Outcome, wanted: Outcome | None) -> Outcome:
        found: Outcome = ()
        for _ in range(_PATIENCE):
            found = (*outcome, *await self._state())
            if wanted is None or found == wanted:
                break
            await asyncio.sleep(0.02)
        return found

    async def _write(self) -> Outcome:
        chance = self._random
        self._count += 1
        subject = f"{self._name}.{chance.choice(_KEYS)}"
        headers: dict[str, str] = {}
        if chance.random() < 0.6:
            headers[_EXPECTED] = str(await self._guess(subject))
        if chance.random() < 0.2:
            headers["Nats-Msg-Id"] = f"m{chance.randrange(8)}"
        if chance.random() < 0.15:
            headers["Nats-Rollup"] = chance.choice(["sub", "sub", "all", "none"])
        if chance.random() < 0.1:
            headers["Nats-TTL"] = chance.choice(["3600", "0.5", "2h"])
        body = b"%d" % self._count
        if chance.random() < 0.05:
            body = body.ljust(_LARGEST + chance.randint(-60, 5), b"x")
        return await raw(self._bus, subject, body, headers)

    async def _guess(self, subject: str) -> int:
        """The last sequence of a subject, mostly."""
        if self._random.random() < 0.25:
            return self._random.randrange(12)
        found = await self._bus.leader_get(self._name, subject)
        return found.seq if found is not None else 0

    async def _batch(self) -> Outcome:
        chance = self._random
        self._count += 1
        staged = []
        for _ in range(chance.randint(1, 4)):
            subject = f"{self._name}.{chance.choice(_KEYS)}"
            headers: dict[str, str] = {}
            if chance.random() < 0.5:
                headers[_EXPECTED] = str(await self._guess(subject))
            if chance.random() < 0.15:
                headers["Nats-Msg-Id"] = f"m{chance.randrange(8)}"
            staged.append((subject, b"%d" % self._count, headers))
        numbers = list(range(1, len(staged) + 1))
        if chance.random() < 0.15:
            numbers[-1] += 1
        if chance.random() < 0.1:  # never committed
            fields = f"Nats-Batch-Id: b{self._count}\r\nNats-Batch-Sequence: 1\r\n".encode()
            _, body = await self._bus.request(staged[0][0], staged[0][1], fields=fields, is_write=True)
            return ("open", body)
        return await batch(self._bus, f"b{self._count}", staged, numbers=numbers)

    async def _pull(self) -> Outcome:
        reported = await self._bus.consumer_info("q", self._name)
        if not reported.num_pending:
            return ("nothing",)
        had = len(self._taken.all)
        self._puller.ask(1, expires_s=60)
        delivery = (await self._taken.until(had + 1))[had]
        return delivery.seq, delivery.number, delivery.data, delivery.subject

    async def _make_anew(self) -> Outcome:
        """Delete the consumer and make it again: everything that is left is delivered again."""
        await self._bus.request_json(f"$JS.API.CONSUMER.DELETE.{self._name}.q")
        await consumer(self._bus, "q", f"{self._name}.>", stream=self._name)
        return ("anew",)

    async def _read(self) -> Outcome:
        subject = f"{self._name}.{self._random.choice(_KEYS)}"
        leader = await self._bus.leader_get(self._name, subject)
        direct = await self._bus.direct_get(self._name, subject)
        return tuple((f.seq, f.data) if f is not None else None for f in (leader, direct))

    async def _list(self) -> Outcome:
        found: list[tuple[int, bytes]] = []
        ask = {"multi_last": [f"{self._name}.>"], "batch": self._random.choice([2, 100])}

        def keep(head: bytes, body: bytes) -> None:
            stored = stored_of(head, body)
            found.append((stored.seq, body))

        head, _ = await self._bus.collect(f"$JS.API.DIRECT.GET.{self._name}", ask, keep)
        return found, head[:12]

    async def _purge(self) -> Outcome:
        key = self._random.choice([*_KEYS, ">"])
        doc: dict[str, Any] = {"filter": f"{self._name}.{key}"}
        if self._random.random() < 0.7:
            doc[self._random.choice(["seq", "keep"])] = self._random.randint(1, self._count + 1)
        answer = await self._bus.request_json(f"$JS.API.STREAM.PURGE.{self._name}", doc)
        return (answer["purged"],)

    async def _delete(self) -> Outcome:
        doc = {"seq": self._random.randint(1, self._count + 2)}
        await self._bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{self._name}", doc)
        return ("deleted",)

    async def _find(self) -> Outcome:
        doc = {
            "seq": self._random.randint(1, self._count + 2),
            "next_by_subj": f"{self._name}.{self._random.choice([*_KEYS, '*'])}",
        }
        answer = await self._bus.request_json(f"$JS.API.STREAM.MSG.GET.{self._name}", doc)
        return (answer["message"]["seq"],)

    async def _subjects(self) -> Outcome:
        ask = {"subjects_filter": f"{self._name}.{self._random.choice([*_KEYS, '>'])}", "offset": 0}
        reported = await self._bus.request_json(f"$JS.API.STREAM.INFO.{self._name}", ask)
        return tuple(sorted((reported["state"].get("subjects") or {}).items())), reported["state"].get(
            "num_subjects", 0
        )

    async def _state(self) -> Outcome:
        """Everything the server says of its stream and its consumer."""
        state = (await self._bus.request_json(f"$JS.API.STREAM.INFO.{self._name}"))["state"]
        found = tuple(state[field] for field in ("messages", "bytes", "first_seq", "last_seq"))
        if self._is_bucket:
            return found
        reported = await self._bus.consumer_info("q", self._name)
        return (
            *found,
            *(reported.num_pending, reported.delivered_stream_seq),
        )


def _reported(message: Message) -> Outcome:
    headers = message.headers
    return message.subject, message.data, headers["Nats-Sequence"], headers["Nats-Last-Sequence"]


async def walk(rig: CaseRig, seed: int, steps: int, expected: Sequence[Outcome] = ()) -> list[Outcome]:
    """One walk; the same outcomes wherever it is walked."""
    return await Walk(rig, seed).run(steps, expected)
