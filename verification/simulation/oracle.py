"""What an all-knowing observer of a simulated world writes down, and the judgement at the end.

The checks themselves are pure functions (:mod:`verification.simulation.checks`) over what stands here.
"""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from signalbox.bus.transport.frames import parse_headers
from signalbox.jobs import deletion
from signalbox.jobs.delayed import is_delayed
from signalbox.wire import jobids, names
from signalbox.wire.messages import Job, Record, State, decode
from signalbox.wire.names import Bucket, Header
from signalbox.wire.workerdocs import Lease, Ticket
from verification.simulation import checks
from verification.simulation.kernel import Process
from verification.simulation.nats.bus import ModelBus
from verification.simulation.nats.link import Link
from verification.simulation.nats.messages import Msg
from verification.simulation.nats.server import Server
from verification.simulation.nats.session import Session

if TYPE_CHECKING:
    from verification.simulation.clients import Entry
    from verification.simulation.hosts import Worker
    from verification.simulation.nats.link import ModelConnection
    from verification.simulation.world import World

ORPHAN_S = 1.0
"""A runner may outlive its supervisor or its guard by so much."""
_LEASE_PREFIX = names.key(Bucket.LEASES, "")
_TICKET_PREFIX = names.key(Bucket.WAITERS, "")
_UNSEEN_S = 5.0
"""Between a look at a queue and its deletion it may deliver more, of which who makes it anew does not know."""
_CLOCKS_S = 2.0
"""The clocks of a world are apart by less."""
_READ: Final = f"$JS.ACK.JOBS.{names.RECONCILER}.".encode()
"""Of the reconciler's own consumer: it reads jobs and runs none."""
_TRACED: Final = ("$JS.API.STREAM.PURGE.", "$JS.API.CONSUMER.DELETE.JOBS.", "redeliver.")


class SeenServer(Server):
    """The model of NATS, watched: no job's message may leave the queue before its end is durable."""

    oracle: "Oracle"

    def declare(self, *args: Any, **settings: Any) -> None:
        """And write down what is stored where it matters."""
        super().declare(*args, **settings)
        for name, see in self.oracle.recorders().items():
            self.streams[name].on_stored.append(see)
        self.streams["JOBS"].on_removed.append(lambda msg: self.oracle.on_removed(self, msg))
        self.streams["STATE"].on_removed.append(lambda msg: self.oracle.on_record_removed(self, msg))

    def publish(self, session: Session | None, subject: str, reply: bytes, head: bytes, data: bytes) -> None:
        """And show in the trace who removes what, and makes which queue anew."""
        world = self.oracle.world
        if world.is_traced and subject.startswith(_TRACED) and not subject.endswith(f".{names.RECONCILER}"):
            world.note("sent", subject=subject, data=data[:80])
        super().publish(session, subject, reply, head, data)

    def deliver(self, to: str, subject: str, reply: bytes, head: bytes, data: bytes) -> None:
        """And write down who gets which job."""
        if reply.startswith(b"$JS.ACK.JOBS.") and not reply.startswith(_READ):
            seq = int(reply.split(b".")[5])
            for session, _ in self.interest.of(to):
                self.oracle.delivered(cast("ModelConnection", session._client)._link, names.job_of(subject), seq)
        super().deliver(to, subject, reply, head, data)


class SeenBus(ModelBus):
    """A worker's or a gateway's bus, watched: which lease writes it knows to be stored, and when it sent them."""

    owner: str
    oracle: "Oracle"

    async def write(self, subject: str, data: bytes = b"", **options: Any) -> int:
        """As every bus."""
        if not subject.startswith(_LEASE_PREFIX) or not data:
            return await super().write(subject, data, **options)
        lease = decode(Lease, data)
        sent_at = self.oracle.world.loop.now
        self.oracle.sends[lease.boot, lease.beats] = sent_at
        revision = await super().write(subject, data, **options)
        if lease.state == "HELD":
            self.oracle.confirm(lease.boot, sent_at)
        return revision

    async def leader_get(self, stream: str, subject: str) -> Any:
        """As every bus."""
        found = await super().leader_get(stream, subject)
        if found is not None and found.data and subject.startswith(_LEASE_PREFIX):
            lease = decode(Lease, found.data)
            sent_at = self.oracle.sends.get((lease.boot, lease.beats))
            if lease.boot.startswith(f"{self.owner}.") and sent_at is not None:
                self.oracle.confirm(lease.boot, sent_at)
        return found


class Oracle:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.records: dict[str, list[checks.Stored]] = {}
        self.queued: dict[str, int] = {}
        self.leases: dict[str, list[checks.LeaseWrite]] = {}
        self.tickets: dict[str, list[checks.TicketWrite]] = {}
        self.sends: dict[tuple[str, int], float] = {}
        self.confirmed: dict[str, list[tuple[float, float]]] = {}
        self.disturbed: dict[str, list[float]] = {}
        self.lost: set[str] = set()
        """Subjects whose last stored writes a fault removed, which Signalbox cannot repair."""
        self.deliveries: dict[str, list[checks.Delivered]] = {}
        self.held_at: dict[str, float] = {}
        """When each worker last got a device."""
        self.on_held: list[Callable[[str], None]] = []
        """Received with the boot of each new holder, as its record is stored."""
        self.reused_until = 0
        """Sequences that a lost tail made free again: a removal of what was there before may hit them."""

    # -- writing down --------------------------------------------------------------------------------

    def recorders(self) -> dict[str, Any]:
        """By stream, what sees each message as it is stored."""
        return {
            "STATE": self._on_state,
            "JOBS": self._on_job,
            Bucket.LEASES.stream: self._on_lease,
            Bucket.WAITERS.stream: self._on_ticket,
        }

    def _on_state(self, msg: Msg) -> None:
        record = decode(Record, parse_headers(msg.head)[Header.RECORD])
        stored = self.records.setdefault(record.id, [])
        if stored and record.state is State.RUNNING and record.attempt > stored[-1].record.attempt:
            self._taken_over(stored[-1].record, record)
        if is_delayed(record):
            self.queued.setdefault(record.id, 0)
        stored.append(checks.Stored(self.world.loop.now, msg.seq, record, msg.data))
        self.world.note(
            "record",
            job=record.id[-6:],
            state=record.state.value,
            attempt=record.attempt,
            worker=record.worker,
            token=record.token,
        )

    def _on_job(self, msg: Msg) -> None:
        try:
            job = decode(Job, parse_headers(msg.head)[Header.JOB])
        except (KeyError, msgspec.MsgspecError):
            return
        self.queued[job.id] = msg.seq
        if job.not_before and "step_nats_clock" not in self.world.outcome.faults:
            self._count("not before its time")
            early_s = job.not_before - self.world.nats_clock.utc(self.world.loop.now)
            if early_s > _CLOCKS_S:
                self.world.broke(f"job {job.id} was queued {early_s:.3f} s before its time")
        if msg.seq <= self.reused_until:
            self.lost |= {job.id, names.state(job.id)}
        self.world.note("queued", job=job.id[-6:], subject=msg.subject[:14], seq=msg.seq)

    def _on_lease(self, msg: Msg) -> None:
        lease = _document(msg, Lease)
        gpu = names.untoken(msg.subject.removeprefix(_LEASE_PREFIX))
        self.leases.setdefault(gpu, []).append(checks.LeaseWrite(self.world.loop.now, msg.seq, lease))
        if lease is None or not lease.beats:
            self.world.note(
                "lease", gpu=gpu, seq=msg.seq, is_=f"{lease.state} {lease.boot} {lease.next}" if lease else "gone"
            )
        if lease is not None and lease.state == "HELD" and not lease.beats:
            self.held_at[lease.owner] = self.world.loop.now
            for receive in list(self.on_held):
                receive(lease.boot)

    def _on_ticket(self, msg: Msg) -> None:
        gpu, _, worker = msg.subject.removeprefix(_TICKET_PREFIX).partition(".")
        ticket = _document(msg, Ticket)
        self.tickets.setdefault(names.untoken(gpu), []).append(
            checks.TicketWrite(self.world.loop.now, names.untoken(worker), (ticket.number or msg.seq) if ticket else 0)
        )

    def confirm(self, boot: str, sent_at: float) -> None:
        """A worker's process knows that a write it sent then is stored."""
        self.confirmed.setdefault(boot, []).append((self.world.loop.now, sent_at))

    def inherit(self, name: str, before: Link | None, link: Link) -> None:
        """A new process of the same host is on the same network."""
        if before is not None:
            link.hold(up=before._is_up_held, down=before._is_down_held)
            link.is_refusing = before.is_refusing
            link.delay_s, link.duplicates = before.delay_s, before.duplicates

    def disturb(self, *who: str) -> None:
        """Something was done to these; who waits in line meanwhile may lose its turn."""
        for name in who:
            self.disturbed.setdefault(name, []).append(self.world.loop.now)

    def delivered(self, link: Link, job_id: str, seq: int) -> None:
        """A consumer sends a job to a worker."""
        who = next((name for name, known in self.world.links.items() if known is link), "")
        self.deliveries.setdefault(job_id, []).append(checks.Delivered(self.world.loop.now, who, seq))
        self.world.note("delivered", job=job_id[-6:], to=who)

    # -- at once -------------------------------------------------------------------------------------

    def _taken_over(self, before: Record, record: Record) -> None:
        """S3 over devices: a run on another device is taken over only when its lease is not there any more."""
        is_elsewhere = before.state is State.RUNNING and before.gpu != record.gpu
        if not is_elsewhere or not checks.UNDOING.isdisjoint(self.world.outcome.faults):
            return
        self._count("taken over")
        stored = self.world.server.streams[Bucket.LEASES.stream].last(_LEASE_PREFIX + names.token(before.gpu))
        lease = _document(stored, Lease) if stored is not None else None
        token = (lease.token or stored.seq) if stored is not None and lease is not None else 0
        if lease is not None and lease.state == "HELD" and token == before.token:
            self.world.broke(f"job {before.id} was taken over from {before.worker}, whose lease stands")

    def ran(self, who: str, job_id: str) -> None:
        """A job that was delivered, and ended, is not run when it is delivered again.

        Not judged where a read may be behind, and where a queue may have forgotten how far it had delivered.
        """
        self.world.note("runs", job=job_id[-6:], who=who)
        if not checks.FORGETTING.isdisjoint(self.world.outcome.faults):
            return
        self._count("not run after its end")
        ended = next((each for each in self.records.get(job_id, []) if each.record.state.is_terminal), None)
        known = [each for each in self.deliveries.get(job_id, []) if each.seq == self.queued.get(job_id)]
        mine = [each.at for each in known if each.to == who and each.at > self.held_at.get(who, 0.0)]
        if ended is not None and mine and mine[0] - _UNSEEN_S > ended.at > known[0].at:
            self.world.broke(f"{who} runs job {job_id}, which had ended when it was delivered again")

    def on_removed(self, server: Server, msg: Msg) -> None:
        """S8: a job's message goes only after its end is durable, or when it stands in the queue once more."""
        self._count("removed after end")
        try:
            job = decode(Job, parse_headers(msg.head)[Header.JOB])
        except (KeyError, msgspec.MsgspecError):
            return
        if self._is_lost(job.id) or server.streams["JOBS"].last(names.job_anywhere(job.id)) is not None:
            return
        found = server.streams["STATE"].last(names.state(job.id))
        record = decode(Record, parse_headers(found.head)[Header.RECORD]) if found is not None else None
        if record is None or not record.state.is_terminal:
            self.world.broke(f"job {job.id} was removed while {record and record.state}")

    def on_record_removed(self, server: Server, msg: Msg) -> None:
        """S15: a record goes only when no message of its job is left, or else that might be run again."""
        job_id = names.job_of(msg.subject)
        if server.streams["STATE"].subjects.get(msg.subject) or self._is_lost(job_id):
            return  # a later record of the job is there
        self._count("record outlives message")
        if server.streams["JOBS"].last(names.job_anywhere(job_id)) is not None:
            self.world.broke(f"job {job_id} is still queued, and its record was removed")

    def watch_orphan(self, worker: "Worker", supervisor: Process, guard: Process, runner: Process) -> None:
        """S4: a runner does not outlive its supervisor or its guard."""

        def check(whose: str) -> None:
            self._count("no orphan")
            if not runner.is_alive or runner.was_stuck:
                return
            machine = runner.machine
            woke_at = machine.naps[-1].ended if machine.naps else 0.0
            thawed_at = max(runner.thawed_at, guard.thawed_at, woke_at)
            is_stopped = runner.program.is_frozen or guard.program.is_frozen or machine.is_asleep
            if is_stopped or self.world.loop.now - thawed_at < ORPHAN_S:
                self.world.later(ORPHAN_S, check, whose)  # who is stopped computes nothing
            else:
                self.world.broke(f"{runner.program} of {worker.name} outlived its {whose} by {ORPHAN_S} s")

        supervisor.last_words.append(lambda: self.world.later(ORPHAN_S, check, "supervisor"))
        guard.last_words.append(lambda: self.world.later(ORPHAN_S, check, "guard"))

    def said_gone(self, entry: "Entry") -> None:
        """S16: of a deleted job nothing is left but its tombstone. One that was raised may get its message late."""
        if self._is_lost(entry.job_id):
            return
        self._count("deleted is gone")
        record = self.records[entry.job_id][-1].record
        streams = self.world.server.streams
        left = [where for where in deletion.places(record) if streams[where[0].value].last(where[1]) is not None]
        if not record.deleted_at or (left and not entry.was_raised):
            self.world.broke(f"job {entry.job_id} was said to be gone, and left {left}")

    def not_found(self, entry: "Entry") -> None:
        """S6: an accepted job is never unknown, a synchronous call for its short time after the end."""
        if not self._is_lost(entry.job_id) and not self._has_had_its_time(entry.job_id):
            self.world.broke(f"job {entry.job_id} was accepted and is not found")

    def _has_had_its_time(self, job_id: str) -> bool:
        """How old a record is goes by NATS's clock: where that was set, all that is asked is that the job has ended."""
        stored = self.records.get(job_id)
        if not jobids.is_short_lived(job_id) or not stored or not stored[-1].record.state.is_terminal:
            return False
        age_s = self.world.loop.now - stored[-1].at
        is_time_true = "step_nats_clock" not in self.world.outcome.faults
        return not is_time_true or age_s > self.world.shape.sync_kept_s - _CLOCKS_S

    def _is_lost(self, job_id: str) -> bool:
        return names.state(job_id) in self.lost or job_id in self.lost

    # -- at the end ----------------------------------------------------------------------------------

    def state_of(self, job_id: str) -> State | None:
        """Of a job's last record."""
        stored = self.records.get(job_id)
        return stored[-1].record.state if stored else None

    def is_quiet(self) -> bool:
        """Everything has ended, and short-lived records are gone where they go within a world."""
        for job_id in self.queued:
            state = self.state_of(job_id)
            if (state is None or not state.is_terminal) and not self._is_lost(job_id):
                return False
        return not (self.world.shape.is_brief and self._brief())

    def _brief(self) -> list[str]:
        """Subjects of the short-lived records that are stored."""
        return [
            subject
            for subject, seqs in self.world.server.streams["STATE"].subjects.items()
            if seqs and names.slot_of_record(subject)
        ]

    def judge(self) -> None:
        """Everything that can only be said at the end."""
        for what in [*self._jobs(), *self._devices()]:
            self.world.broke(what)
        self.world.outcome.jobs = len(self.queued)

    def _jobs(self) -> Iterator[str]:
        entries = self.world.ledger.entries
        for job_id in self.queued:
            self._count("every job ends")
            state = self.state_of(job_id)
            if not self._is_lost(job_id) and (state is None or not state.is_terminal):
                entry = entries.get(job_id)
                how = "accepted" if entry and entry.accepted_at is not None else "stored"
                yield f"job {job_id} was {how} and is {state} at the end"
        if self.world.shape.is_brief:
            self._count("short-lived records go")
            yield from (f"{subject} is still stored" for subject in self._brief())
        for entry in entries.values():
            if not self._is_lost(entry.job_id):
                self._count("told the truth")
                found = checks.reported(entry.seen, self.records.get(entry.job_id, []))
                yield from (f"job {entry.job_id}: {what}" for what in found)
                yield from self._fate(entry)
                if entry.accepted_at is not None and entry.job_id not in self.queued:
                    yield f"job {entry.job_id} was accepted and never stored"
        keyed = [(entries[job_id].key, job_id) for job_id in self.queued if job_id in entries]
        self._count("once a key", sum(bool(key) for key, _ in keyed))
        yield from checks.once(keyed)
        for job_id, stored in self.records.items():
            if not self._is_lost(job_id):
                self._count("legal transitions", len(stored))
                yield from (f"job {job_id}: {what}" for what in checks.transitions(stored))

    def _fate(self, entry: "Entry") -> Iterator[str]:
        """As its own doing deserves."""
        stored = self.records.get(entry.job_id)
        ends = [one for one in stored or () if one.record.state.is_terminal and not one.record.deleted_at]
        if ends:
            self._count("own fate")
            found = checks.fate(
                entry,
                ends[-1],
                deadline_s=self.world.model.limits.deadline_s,
                done=self.world.outcome.faults.keys(),
                served_by=self._served_by(),
                is_apart=self.world.shape.is_apart,
            )
            yield from (f"job {entry.job_id}: {what}" for what in found)

    def _served_by(self) -> float:
        """No time can be said where a job hangs or crashes: all that share its batches wait for it again and again.

        Nor where the delivery of a second attempt may have been lost without a noise: that is found after a minute.
        """
        done = {entry.task.does for entry in self.world.ledger.entries.values()}
        is_unseen = "lose_deliveries" in self.world.outcome.faults
        return math.inf if is_unseen or done & {"hang", "crash"} else self.world.served_by

    def _devices(self) -> Iterator[str]:
        for device in self.world.devices:
            stays = device.stays
            self._count("one inside", len(stays))
            self._count("fenced in time", len(stays))
            leases = self.leases.get(device.id, [])
            self._count("in line", len(leases))
            yield from device.overlaps
            yield from checks.tokens(stays)
            yield from checks.fenced(stays, self.confirmed, self.world)
            if checks.LAPSING.isdisjoint(self.world.outcome.faults):
                self._count("record outlives stay", sum(write.lease is None for write in leases))
                yield from checks.outlived(leases, stays)
            yield from checks.overtaken(leases, self.tickets.get(device.id, []), self.disturbed)

    def _count(self, what: str, times: int = 1) -> None:
        counts = self.world.outcome.checks
        counts[what] = counts.get(what, 0) + times


def _document(msg: Msg, type_: Any) -> Any:
    if not msg.data or b"Nats-Marker-Reason:" in msg.head or b"KV-Operation:" in msg.head:
        return None
    return decode(type_, msg.data)
