"""The wait queue of a device, whatever becomes of the writes: production tickets on the model of NATS."""

import asyncio
import random
from contextlib import ExitStack
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from signalbox.bus.client import Bus, Message
from signalbox.program.errors import SignalboxError, StaleRevision
from signalbox.program.settings import Wire
from signalbox.wire import messages, names
from signalbox.wire.events import is_removal
from signalbox.wire.messages import Ticket
from signalbox.wire.names import Bucket, Header
from verification.simulation.__main__ import silenced
from verification.simulation.loop import EPOCH, SimLoop, running
from verification.simulation.nats.bus import ModelBus
from verification.simulation.nats.link import Link
from verification.simulation.nats.server import Server
from workers.lease.tickets import DropTicket, OwnTicket, WaitQueue

GPU, TTL_S = "gpu", 6
WORKERS = ("w1", "w2", "w3")
MOMENT_S = 0.05
_WORKER = st.sampled_from(WORKERS)


class Waiter:
    """One worker's ticket and its view of the wait queue, carried as
    :class:`workers.device.leased.LeasedDevice` carries them."""

    def __init__(self, loop: SimLoop, bus: Bus, name: str) -> None:
        self.loop, self.bus, self.name = loop, bus, name
        self.subject = names.key(Bucket.WAITERS, names.ticket(GPU, name))
        self.lives = 0
        self.waiters = WaitQueue()
        self.is_wanted = False
        self.be_born()

    def be_born(self) -> None:
        """A new process: nothing is left of its ticket but what NATS has."""
        self.lives += 1
        self.ticket = OwnTicket(GPU, self.name, f"{self.name}.{self.lives}", ttl_s=TTL_S, epoch=EPOCH)
        self.ticket.want(self.is_wanted, self.loop.now)

    def want(self, is_wanted: bool) -> None:
        self.is_wanted = is_wanted
        self.ticket.want(is_wanted, self.loop.now)

    async def listen(self) -> None:
        events = names.event_of_key(Bucket.WAITERS, f"{names.token(GPU)}.*")
        await self.bus.subscribe(events, self._hear)

    def _hear(self, message: Message) -> None:
        self._put(message.subject, message.headers, message.data, int(message.headers[Header.SEQUENCE]))

    def _put(self, subject: str, headers: Any, data: bytes, sequence: int) -> None:
        worker = names.untoken(subject.rpartition(".")[2])
        if is_removal(headers) or not data:
            self.waiters.drop(worker)
        else:
            number = messages.decode(Ticket, data).number or sequence
            self.waiters.put(worker, number, self.loop.now)

    async def read_line(self) -> None:
        found = await self.bus.list_latest(Bucket.WAITERS.stream, [names.key(Bucket.WAITERS, f"{names.token(GPU)}.*")])
        self.waiters.clear()
        for stored in found:
            self._put(stored.subject, stored.headers, stored.data, stored.seq)

    async def write_what_is_due(self) -> None:
        """Until nothing is, or NATS does not answer."""
        while (write := self.ticket.due(self.loop.now)) is not None:
            ticket = self.ticket
            try:
                if isinstance(write, DropTicket):
                    headers: dict[str, str] = {Header.KV_OPERATION: "DEL"}
                    sequence = await self.bus.write(self.subject, headers=headers, expect=write.expect)
                else:
                    sequence = await self.bus.write(
                        self.subject, messages.encode(write.ticket), expect=write.expect, ttl_s=write.ttl_s
                    )
            except StaleRevision as error:
                ticket.refused(error.last, self.loop.now)
            except SignalboxError:
                ticket.failed(self.loop.now)
                return
            else:
                ticket.written(sequence, self.loop.now)


class Waiting(RuleBasedStateMachine):
    """Three workers at one device.

    held: numbers that must not change; gone from it is who gave its ticket up, died, or said nothing for too long.
    unsure: workers whose first answer was lost, or that may be late with a renewal: a stored write without an answer
    may cost them their number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.loop = self.stack.enter_context(running(1))
        self.waiters: dict[str, Waiter] = {}
        self.held: dict[str, int] = {}
        self.unsure: set[str] = set()
        self.renewed_at: dict[str, float] = {}

    @initialize()
    def open(self) -> None:
        """A server, and everybody connected."""

        async def connect() -> None:
            self.server = Server(clock=lambda: EPOCH + self.loop.now, rng=random.Random(1))
            self.server.declare()
            for name in WORKERS:
                bus = ModelBus(
                    self.server, Link(self.server, rng=random.Random(name)), settings=Wire(request_timeout_s=0.5)
                )
                self.waiters[name] = waiter = Waiter(self.loop, await bus.open(name), name)
                await waiter.listen()

        self._do(connect())

    def teardown(self) -> None:
        self.stack.close()

    def _do(self, act: Any) -> None:
        async def live() -> None:
            await act
            await asyncio.sleep(MOMENT_S)  # for the events

        self.loop.run_until_complete(self.loop.spawn_world(live()))

    def on_server(self) -> dict[str, int]:
        """Who has a ticket now, and its number."""
        stream = self.server.streams[Bucket.WAITERS.stream]
        found = {}
        for name, waiter in self.waiters.items():
            if sequences := stream.subjects.get(waiter.subject):
                msg = stream.msgs[sequences[-1]]
                if msg.data and b"Nats-Marker-Reason" not in msg.head:
                    found[name] = messages.decode(Ticket, msg.data).number or msg.seq
                    self.renewed_at[name] = msg.at
        return found

    # -- acts ----------------------------------------------------------------------------------------

    @rule(name=_WORKER, is_wanted=st.booleans())
    def wants(self, name: str, is_wanted: bool) -> None:
        self.waiters[name].want(is_wanted)
        self.held.pop(name, None)

    @rule(name=_WORKER)
    def writes(self, name: str) -> None:
        self._do(self.waiters[name].write_what_is_due())

    @rule(name=_WORKER)
    def writes_and_the_request_is_lost(self, name: str) -> None:
        self._write_badly(name, "lost_requests")

    @rule(name=_WORKER)
    def writes_and_the_answer_is_lost(self, name: str) -> None:
        if not self.waiters[name].ticket.number:
            self.unsure.add(name)
        self._do(asyncio.sleep(TTL_S / 3))  # a renewal is due
        self._write_badly(name, "lost_answers")

    def _write_badly(self, name: str, knob: str) -> None:
        setattr(self.server, knob, 1.0)
        self._do(self.waiters[name].write_what_is_due())
        setattr(self.server, knob, 0.0)
        self._forget_the_stale()

    @rule(name=_WORKER)
    def dies_and_is_started_again(self, name: str) -> None:
        self.waiters[name].be_born()
        self.held.pop(name, None)

    @rule(name=_WORKER)
    def reads_the_line_again(self, name: str) -> None:
        self._do(self.waiters[name].read_line())

    @rule(seconds=st.sampled_from([1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        """Everybody writes as often as is due, as a lane's timer has it; then who wants a ticket has one."""

        async def live() -> None:
            until = self.loop.now + seconds
            while self.loop.now < until:
                await asyncio.gather(*(w.write_what_is_due() for w in self.waiters.values()))
                await asyncio.sleep(0.1)

        self._do(live())
        self.unsure.clear()
        wanting = {name for name, waiter in self.waiters.items() if waiter.is_wanted}
        found = self.on_server().keys()
        assert wanting <= found
        for name in found - wanting:  # left by an earlier life
            assert self.loop.now - self.renewed_at[name] < TTL_S

    @rule(seconds=st.sampled_from([1.0, 7.0]))
    def everybody_sleeps(self, seconds: float) -> None:
        self._do(asyncio.sleep(seconds))
        self._forget_the_stale()

    def _forget_the_stale(self) -> None:
        """A worker that has not renewed for half its time may be late with it, until its next write is answered."""
        self.on_server()
        for name, at in self.renewed_at.items():
            if self.loop.now - at > TTL_S / 2:
                self.held.pop(name, None)
                self.unsure.add(name)

    # -- laws ----------------------------------------------------------------------------------------

    @invariant()
    def number_never_changes_while_it_is_held(self) -> None:
        on_server = self.on_server()
        for name, waiter in self.waiters.items():
            number = waiter.ticket.number
            is_sure = waiter.is_wanted and name not in self.unsure
            if is_sure and number and on_server.get(name) == number:
                self.held.setdefault(name, number)
        assert {name: on_server.get(name) for name in self.held} == self.held
        assert {name: self.waiters[name].ticket.number for name in self.held} == self.held

    @invariant()
    def nobody_has_another_s_number(self) -> None:
        numbers = list(self.on_server().values())
        assert len(set(numbers)) == len(numbers)

    @invariant()
    def everybody_sees_the_same_line(self) -> None:
        on_server = self.on_server()
        first = min(on_server, key=on_server.__getitem__, default="")
        for waiter in self.waiters.values():
            assert waiter.waiters._numbers == on_server
            assert waiter.waiters.head(but="") == first


def test_nobody_is_lost_from_the_line_and_no_number_changes_while_it_is_held() -> None:
    with silenced():
        run_state_machine_as_test(
            Waiting,
            settings=settings(
                max_examples=40,
                stateful_step_count=30,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
