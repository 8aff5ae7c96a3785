"""The faults of a simulated world: which, when, and how they heal. The seed draws every choice."""

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from signalbox.wire import names
from signalbox.wire.names import Bucket
from verification.simulation.hosts import Host, Worker
from verification.simulation.kernel import Machine, Process
from verification.simulation.moves import Moves
from verification.simulation.naps import Naps
from verification.simulation.nats.link import Link

if TYPE_CHECKING:
    from verification.simulation.world import World

_PURGE: Final = b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n"
_NEIGHBOURS: Final = 40
_NEIGHBOUR_BYTES: Final = 4096
_NEIGHBOUR_S: Final = 0.2
INPUTS_BYTES: Final = 256 * 1024
"""Room for inputs where they lie apart: enough for all of a world's, and soon full of a neighbour's."""
_LOSSY: Final = ("STATE", "JOBS", Bucket.LEASES.stream, Bucket.WAITERS.stream)


class Faults:
    """The faults of one world. A name below is what the run counts it under."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.chance = random.Random(f"faults {world.shape.seed}")
        self.naps = Naps(world)
        self._undo: list[Callable[[], None]] = []
        self._stopped: set[Process] = set()
        is_clustered = self.chance.random() < 0.5
        self.weights: dict[Callable[[], bool], float] = {
            self.stop_supervisor: 3,
            self.stop_heir: 1,
            self.stop_guard: 1,
            self.stop_runner: 1,
            self.stop_gateway: 1,
            self.stop_machine: 1,
            self.kill_supervisor: 3,
            self.kill_guard: 1,
            self.kill_runner: 2,
            self.kill_gateway: 2,
            self.drain_worker: 1,
            self.reboot_machine: 0.5,
            self.hang_runner_in_kernel: 0.5,
            self.partition: 3,
            self.partition_up: 1.5,
            self.partition_down: 1.5,
            self.cut: 2,
            self.cut_and_late: 1,
            self.slow_link: 1,
            self.duplicate: 1,
            self.stop_nats: 1,
            self.kill_nats: 1,
            self.lose_requests: 1,
            self.lose_answers: 1,
            self.lose_deliveries: 0.3,
            self.lose_hints: 1,
            self.late_requests: 1,
            self.stale_reads: 0.5,
            self.late_expiry: 0.5,
            self.late_markers: 0.5,
            self.lost_markers: 0.3,
            self.step_nats_clock: 0.7,
            self.step_clock: 1,
            self.delete_lease: 0.7,
            self.ask_release: 0.7,
            self.elect: 2 if is_clustered else 0,
            self.lose_tail: 1 if self.chance.random() < 0.06 else 0,
            self.roll_back_leases: 1 if self.chance.random() < 0.06 else 0,
        }
        if world.shape.is_calm:
            self.weights = dict.fromkeys(
                [
                    self.stop_gateway,
                    self.kill_gateway,
                    self.partition,
                    self.partition_up,
                    self.partition_down,
                    self.cut,
                    self.cut_and_late,
                    self.slow_link,
                    self.duplicate,
                ],
                1.0,
            )
        if is_clustered:
            world.server.commit_s = 0.003

    def plan(self) -> None:
        """Draw all of them."""
        shape = self.world.shape
        kinds, weights = list(self.weights), list(self.weights.values())
        for _ in range(shape.faults):
            kind = self.chance.choices(kinds, weights)[0]
            self.world.later(self.chance.uniform(0.5, shape.lull_s - 0.5), self._inject, kind)
        if shape.is_apart:
            chance = random.Random(f"neighbours {shape.seed}")
            for _ in range(_NEIGHBOURS):
                at_s = chance.uniform(0.5, shape.lull_s - 0.5)
                self.world.later(at_s, self._inject, self.neighbour_stores)
        self.naps.plan()
        Moves(self.world).plan()

    def heal(self) -> None:
        """Everything works again from now on, or as soon as it wakes."""
        while self._undo:
            self._undo.pop()()
        for process in list(self._stopped):
            process.resume()
        for host in self.world.hosts:
            host.start()

    def _inject(self, kind: Callable[[], bool]) -> None:
        if kind():
            self.world.injected(kind.__name__)

    # -- helpers of the kinds ------------------------------------------------------------------------

    def _seconds(self) -> float:
        """Mostly short, sometimes longer than a fence."""
        longest = self.chance.choice([0.3, 2.0, self.world.shape.rules.fence_s * 2])
        return self.chance.uniform(0.02, longest)

    def _for_a_while(self, undo: Callable[[], None], *disturbed: str) -> bool:
        """Undo it later, or at the healing."""
        self.world.oracle.disturb(*disturbed)
        is_open = [True]

        def once() -> None:
            if is_open[0]:
                is_open[0] = False
                undo()
                self.world.oracle.disturb(*disturbed)

        self._undo.append(once)
        seconds = self._seconds()
        self.world.later(seconds, once)
        self.world.note("  for", seconds=round(seconds, 3))
        return True

    def _nats(self, act: Callable[..., object], *args: object) -> None:
        """What happens in the server happens by its clocks."""
        self.world.nats.context.run(act, *args)

    def _everybody(self) -> list[str]:
        return [host.name for host in self.world.hosts]

    def _worker(self) -> Worker:
        return self.chance.choice(self.world.workers)

    def _family(self, worker: Worker) -> list[Process]:
        """Supervisor, guard and runner, as far as they live."""
        found = [worker.process] if worker.process is not None else []
        for process in found:
            found += [child for child in process.children if child.name != "waiter"]
        return [process for process in found if process.is_running]

    def _member(self, worker: Worker, name: str) -> Process | None:
        found = [p for p in self._family(worker) if p.name.startswith(name)]
        return found[0] if found else None

    def _stop(self, who: str, *processes: Process) -> bool:
        self.world.note("FAULT stop", who=[p.program for p in processes])
        for process in processes:
            process.stop()
            self._stopped.add(process)
            if process.name.startswith("guard"):
                self._excuse(process)

        def resume() -> None:
            for process in processes:
                process.resume()
                self._stopped.discard(process)

        return self._for_a_while(resume, who)

    def _excuse(self, guard: Process) -> None:
        pids = {child.pid for child in guard.children}
        for device in self.world.devices:
            for stay in device.stays:
                if stay.left is None and stay.runner in pids:
                    stay.is_excused = True

    def _kill(self, who: str, process: Process | None) -> bool:
        if process is None:
            return False
        self.world.note("FAULT kill", who=process.program)
        self.world.oracle.disturb(who)
        process.kill()
        return True

    def _link(self) -> tuple[Host, Link] | None:
        world = self.world
        host: Host = self.chance.choice(world.gateways if world.shape.is_calm else world.hosts)
        link = self.world.links.get(host.name)
        return None if link is None else (host, link)

    # -- processes -----------------------------------------------------------------------------------

    def stop_supervisor(self) -> bool:
        """SIGSTOP, or a loop that is blocked."""
        worker = self._worker()
        process = worker.process
        return process is not None and process.is_running and self._stop(worker.name, process)

    def stop_heir(self) -> bool:
        """SIGSTOP to the next worker that gets a lease, after its record and before it enters the device."""
        received = self.world.oracle.on_held

        def freeze(boot: str) -> None:
            if freeze not in received:
                return
            received.remove(freeze)
            worker = next(w for w in self.world.workers if boot.startswith(f"{w.name}."))
            if worker.process is not None and worker.process.is_running:
                self._stop(worker.name, worker.process)
                self.world.injected("stop_heir")

        received.append(freeze)
        self._undo.append(received.clear)
        return False  # counted when it comes to pass

    def stop_guard(self) -> bool:
        """SIGSTOP."""
        worker = self._worker()
        process = self._member(worker, "guard")
        return process is not None and self._stop(worker.name, process)

    def stop_runner(self) -> bool:
        """SIGSTOP."""
        worker = self._worker()
        process = self._member(worker, "runner")
        return process is not None and self._stop(worker.name, process)

    def stop_gateway(self) -> bool:
        """SIGSTOP."""
        gateway = self.chance.choice(self.world.gateways)
        process = gateway.process
        return process is not None and process.is_running and self._stop(gateway.name, process)

    def stop_machine(self) -> bool:
        """A virtual machine is paused: everything on it stops, its clocks go on."""
        machine = self.chance.choice(self.world.machines)
        processes = [p for p in machine.processes.values() if p.is_running and p.name != "waiter"]
        for host in self.world.hosts:
            if host.machine is machine:
                self.world.oracle.disturb(host.name)
        return self._stop("", *processes)

    def kill_supervisor(self) -> bool:
        """SIGKILL."""
        worker = self._worker()
        process = worker.process
        return self._kill(worker.name, process if process and process.is_running else None)

    def kill_guard(self) -> bool:
        """SIGKILL."""
        worker = self._worker()
        return self._kill(worker.name, self._member(worker, "guard"))

    def kill_runner(self) -> bool:
        """SIGKILL, the kernel's out-of-memory killer, or a crash of its own."""
        worker = self._worker()
        return self._kill(worker.name, self._member(worker, "runner"))

    def kill_gateway(self) -> bool:
        """SIGKILL."""
        gateway = self.chance.choice(self.world.gateways)
        process = gateway.process
        return self._kill(gateway.name, process if process and process.is_running else None)

    def drain_worker(self) -> bool:
        """SIGTERM: it ends in good order and is started again."""
        worker = self._worker()
        process, supervisor = worker.process, worker.supervisor
        if process is None or supervisor is None or not process.is_running:
            return False
        self.world.note("FAULT drain", who=worker.name)
        self.world.oracle.disturb(worker.name)
        self.world.loop.post(process.program, supervisor.stop)
        return True

    def reboot_machine(self) -> bool:
        """Power lost and back."""
        machine: Machine = self.chance.choice(self.world.machines)
        self.world.note("FAULT reboot", machine=machine.name)
        hosts = [host for host in self.world.hosts if host.machine is machine]
        self.world.oracle.disturb(*(host.name for host in hosts))
        machine.reboot()
        return True

    def hang_runner_in_kernel(self) -> bool:
        """D state: it is killed and does not die for a while."""
        worker = self._worker()
        process, guard = self._member(worker, "runner"), self._member(worker, "guard")
        if process is None or guard is None:
            return False
        self.world.note("FAULT stuck", who=process.program)
        self._excuse(guard)
        process.is_stuck = process.was_stuck = True
        process.kill()

        def come_loose() -> None:
            process.is_stuck = False

        return self._for_a_while(come_loose, worker.name)

    # -- the network of one host ---------------------------------------------------------------------

    def _hold(self, *, up: bool, down: bool) -> bool:
        found = self._link()
        if found is None:
            return False
        host, link = found
        self.world.note("FAULT partition", who=host.name, up=up, down=down)
        link.hold(up=up, down=down)

        def release() -> None:
            link.release()
            now = self.world.links[host.name]
            if now is not link:  # a process that was started meanwhile inherited it
                now.release()

        return self._for_a_while(release, host.name)

    def partition(self) -> bool:
        """Nothing passes."""
        return self._hold(up=True, down=True)

    def partition_up(self) -> bool:
        """It receives and is not received."""
        return self._hold(up=True, down=False)

    def partition_down(self) -> bool:
        """It is received and does not receive: answers and deliveries are lost."""
        return self._hold(up=False, down=True)

    def cut(self) -> bool:
        """The connection is reset; what was on its way is lost."""
        found = self._link()
        if found is None:
            return False
        self.world.note("FAULT cut", who=found[0].name)
        self.world.oracle.disturb(found[0].name)
        found[1].cut()
        return True

    def cut_and_late(self) -> bool:
        """The connection is reset; what was on its way is acted on long after."""
        found = self._link()
        if found is None:
            return False
        self.world.note("FAULT cut and late", who=found[0].name)
        self.world.oracle.disturb(found[0].name)
        found[1].hold(up=True, down=False)
        late_s = self._seconds()

        def cut() -> None:
            found[1].cut(late_s=late_s)
            found[1].release()
            self.world.links[found[0].name].release()  # of who was started again meanwhile

        return self._for_a_while(cut, found[0].name)

    def slow_link(self) -> bool:
        """Up to 0.3 s one way."""
        found = self._link()
        if found is None:
            return False
        self.world.note("FAULT slow", who=found[0].name)
        link, before = found[1], found[1].delay_s
        link.delay_s = (0.01, 0.3)
        return self._for_a_while(lambda: setattr(link, "delay_s", before), found[0].name)

    def duplicate(self) -> bool:
        """A proxy repeats what it passes on."""
        found = self._link()
        if found is None:
            return False
        self.world.note("FAULT duplicate", who=found[0].name)
        link = found[1]
        link.duplicates, link.duplicate_late_s = 0.3, self._seconds()
        return self._for_a_while(lambda: setattr(link, "duplicates", 0.0), found[0].name)

    # -- NATS ----------------------------------------------------------------------------------------

    def stop_nats(self) -> bool:
        """SIGSTOP."""
        server = self.world.server
        if server.is_paused or not server.is_running:
            return False
        self.world.note("FAULT stop nats")
        self._nats(server.pause)
        return self._for_a_while(partial(self._nats, server.resume), *self._everybody())

    def _killed(self, lost: dict[str, int]) -> bool:
        server = self.world.server
        if not server.is_running:
            return False
        self.world.note("FAULT kill nats", lost=lost)
        for name, count in lost.items():
            stream = server.streams[name]
            subjects = [m.subject for seq, m in stream.msgs.items() if seq > stream.last_seq - count]
            self.world.oracle.lost.update(subjects)
            self.world.oracle.lost.update(s.rpartition(".")[2] for s in subjects)
        if lost.get("JOBS"):
            self.world.oracle.reused_until = server.streams["JOBS"].last_seq
        self._nats(server.kill, lost)
        return self._for_a_while(partial(self._nats, server.start), *self._everybody())

    def kill_nats(self) -> bool:
        """SIGKILL; everything that was acknowledged is on its disk."""
        return self._killed({})

    def lose_tail(self) -> bool:
        """A power cut on a disk that lied: the last writes are gone. Jobs may be lost, exclusion may not."""
        return self._killed({name: self.chance.randint(0, 4) for name in _LOSSY})

    def roll_back_leases(self) -> bool:
        """Sequences of the leases go backwards."""
        if not self.world.server.is_running:
            return False
        self.world.note("FAULT roll back")
        rolled = self.chance.randint(1, 40)
        self._nats(self.world.server.roll_back, Bucket.LEASES.stream, rolled)
        self.world.oracle.disturb(*self._everybody())
        return True

    def elect(self) -> bool:
        """No leader for a while, and perhaps the node of the last one, with the queues that it had, for longer."""
        server = self.world.server
        if not server.is_running:
            return False
        self.world.note("FAULT elect")
        names_ = [] if self.chance.random() < 0.5 else [self.chance.choice(list(server.streams))]
        for_s = min(self._seconds() + 0.1, self.world.shape.rules.failover_s)
        left_s = max(0.0, self.world.shape.lull_s - self.world.loop.now - for_s)
        away_s = self.chance.uniform(0.0, left_s) if self.chance.random() < 0.8 else 0.0
        self._nats(partial(server.lose_leader, for_s, names=names_, silent_s=min(0.5, for_s / 2), away_s=away_s))
        self.world.oracle.disturb(*self._everybody())
        self.world.later(for_s, self.world.oracle.disturb, *self._everybody())
        return True

    def _knob(self, name: str, value: object, calm: object) -> bool:
        server = self.world.server
        self.world.note("FAULT knob", name=name, value=value)
        setattr(server, name, value)
        return self._for_a_while(lambda: setattr(server, name, calm), *self._everybody())

    def lose_requests(self) -> bool:
        """A part of the questions and writes is dropped."""
        return self._knob("lost_requests", self.chance.uniform(0.05, 0.6), 0.0)

    def lose_answers(self) -> bool:
        """A part of the answers is dropped: writes are stored and their writers get no answer."""
        return self._knob("lost_answers", self.chance.uniform(0.05, 0.6), 0.0)

    def lose_deliveries(self) -> bool:
        """A part of the jobs that are delivered reaches nobody, without a noise."""
        return self._knob("lost_deliveries", self.chance.uniform(0.05, 0.6), 0.0)

    def lose_hints(self) -> bool:
        """Workers do not learn of a part of the jobs."""
        return self._knob("lost_hints", self.chance.uniform(0.2, 1.0), 0.0)

    def late_requests(self) -> bool:
        """A part of the writes is acted on seconds later."""
        return self._knob("late_requests", (self.chance.uniform(0.05, 0.5), self._seconds()), (0.0, 0.0))

    def stale_reads(self) -> bool:
        """Direct reads come from a replica that lags."""
        return self._knob("stale_s", self._seconds(), 0.0)

    def late_expiry(self) -> bool:
        """Time-to-live ends late."""
        return self._knob("ttl_late_s", self._seconds(), 0.0)

    def late_markers(self) -> bool:
        """What is written between an expiry and its marker is rolled up with it."""
        return self._knob("marker_late_s", self.chance.uniform(0, 0.5), 0.0)

    def lost_markers(self) -> bool:
        """Keys expire without a word."""
        return self._knob("marker_loss", 1.0, 0.0)

    def step_nats_clock(self) -> bool:
        """The server's wall clock jumps, and with it every time-to-live."""
        seconds = self.chance.choice([-30, -3, -1, 1, 3, 8, 30, 600])
        self.world.note("FAULT step nats clock", seconds=seconds)
        self.world.nats_clock.wall += seconds
        self.world.oracle.disturb(*self._everybody())
        return True

    # -- clocks and operators ------------------------------------------------------------------------

    def step_clock(self) -> bool:
        """A machine's wall clock jumps."""
        machine = self.chance.choice(self.world.machines)
        seconds = self.chance.choice([-3600, -10, -1, 1, 10, 3600])
        self.world.note("FAULT step clock", machine=machine.name, seconds=seconds)
        machine.clock.wall += seconds
        return True

    def delete_lease(self) -> bool:
        """A person deletes a lease by hand."""
        server = self.world.server
        if not server.is_running or server.is_paused:
            return False
        device = self.chance.choice(self.world.devices)
        self.world.note("FAULT delete lease", gpu=device.id)
        subject = names.key(Bucket.LEASES, names.token(device.id))
        self._nats(server.publish, None, subject, b"", _PURGE, b"")
        self.world.oracle.disturb(*self._everybody())
        return True

    def neighbour_stores(self) -> bool:
        """While jobs wait, inputs that a gateway which counts wrongly lets in take all the room there is."""
        server = self.world.server
        if not server.is_running or server.is_paused or not server.streams["INPUTS"].msgs:
            return False
        self.world.note("FAULT neighbour stores")
        for number in range(2 * INPUTS_BYTES // _NEIGHBOUR_BYTES):
            subject = names.job_input("neighbour", str(number), _NEIGHBOUR_BYTES)
            self._nats(server.publish, None, subject, b"", b"", bytes(_NEIGHBOUR_BYTES))
        self.world.later(_NEIGHBOUR_S, self._neighbour_ends)
        return True

    def _neighbour_ends(self) -> None:
        stream = self.world.server.streams["INPUTS"]
        self._nats(stream.purge, names.job_inputs("neighbour"))

    def ask_release(self) -> bool:
        """An operator asks the holder to hand over."""
        server = self.world.server
        if not server.is_running or server.is_paused:
            return False
        device = self.chance.choice(self.world.devices)
        self.world.note("FAULT ask release", gpu=device.id)
        self._nats(server.publish, None, names.ask_release(device.id), b"", b"", b"")
        self.world.oracle.disturb(*self._everybody())
        return True
