"""The mutants: bugs that a harness worth its name must find, each with the layer that must find it.

Numbers 1 to 20 follow the list that the project's promises came with, adapted to how Signalbox is built;
``instead`` says what was put in the place of what has no counterpart here. Later ones are bugs that were found.
"""

from pathlib import Path
from typing import Final, NamedTuple

PATCHES: Final = Path(__file__).with_name("patches")


class Mutant(NamedTuple):
    """command: arguments of Python that pass without the patch and fail with it."""

    number: int
    name: str
    layer: str
    command: tuple[str, ...]
    instead: str = ""

    @property
    def patch(self) -> Path:
        """The file; its name begins with the number."""
        (found,) = PATCHES.glob(f"{self.number:02}-*.patch")
        return found


def _pytest(selection: str, words: str = "") -> tuple[str, ...]:
    chosen = ("-k", words) if words else ()
    quiet = ("-q", "-x", "-p", "no:cacheprovider", "--depth", "full")
    return ("-m", "pytest", *quiet, *selection.split(), *chosen)


def _scope(faults: int) -> tuple[str, ...]:
    return ("-m", "verification.scope", "--workers", "2", "--jobs", "1", "--faults", str(faults))


def _sim(first: int, seeds: int) -> tuple[str, ...]:
    return ("-m", "verification.simulation", "--first", str(first), "--seeds", str(seeds), "--jobs", "1")


MUTANTS: Final = (
    Mutant(1, "release without compare-and-set", "scope", _scope(1)),
    Mutant(2, "heartbeat without TTL", "scope", _scope(1)),
    Mutant(3, "no heartbeat", "unit", _pytest("tests/unit/test_lease_machine.py")),
    Mutant(
        4,
        "slot of the queue removed with an open job",
        "simulation",
        _sim(0, 4),
        instead="an acknowledgement before the commit: nothing is acknowledged, the reconciler removes what has ended",
    ),
    Mutant(
        5, "result written without compare-and-set", "integration", _pytest("tests/integration/test_worker_claims.py")
    ),
    Mutant(
        6, "deadline counted from the answer, not from the sending", "unit", _pytest("tests/unit/test_lease_machine.py")
    ),
    Mutant(
        7,
        "deadline on the wall clock",
        "integration",
        _pytest("tests/integration/test_lease_devices.py", "frozen_holder_is_fenced"),
    ),
    Mutant(
        8,
        "flock freed before the runner is dead",
        "scope",
        _scope(1),
        instead="a lock held by the supervisor only: guard and runner share ours, so it is the order that can break",
    ),
    Mutant(
        9, "no parent-death signal", "integration", _pytest("tests/integration/test_lease_guard.py", "end_of_the_guard")
    ),
    Mutant(
        10,
        "parent-death signal before the change of user",
        "integration",
        _pytest("tests/integration/test_sandbox_holds.py"),
    ),
    Mutant(
        11,
        "device not asked whether it is free",
        "integration",
        _pytest("tests/integration/test_nvidia_devices.py", "dirty_gpu"),
    ),
    Mutant(
        12, "lease seized without the same boot", "unit", _pytest("tests/unit/test_lease_machine.py", "another_host")
    ),
    Mutant(
        13,
        "idempotency without compare-and-set",
        "integration",
        _pytest("tests/unit/test_gateway_idempotency.py tests/integration/test_gateway_idempotency.py"),
        instead="idempotency by JetStream's dedupe id: ours is a record, so it is the record's compare-and-set",
    ),
    Mutant(
        14,
        "decided on direct reads",
        "integration",
        _pytest("tests/integration/test_lease_devices.py", "killed_holder"),
    ),
    Mutant(
        15,
        "blocking run in the loop",
        "unit",
        _pytest("tests/unit/test_worker_loop.py"),
        instead="inference in the loop: the runner is a process, so what can block is the way to it",
    ),
    Mutant(
        16,
        "numpy in the supervisor",
        "unit",
        _pytest("tests/unit/test_worker_settings.py", "never_imports"),
        instead="TensorFlow in the supervisor: numpy comes with it and is installed everywhere",
    ),
    Mutant(
        17,
        "refused commit repeated without asking whose the job is",
        "integration",
        _pytest("tests/integration/test_worker_claims.py"),
    ),
    Mutant(
        18,
        "waiters look once a second",
        "integration",
        _pytest("tests/integration/test_lease_devices.py", "hears_of_a_release"),
        instead="a deaf waiter: the flock wakes it as well as the event, so both are late",
    ),
    Mutant(
        19,
        "hold begun without a look at the queues",
        "unit",
        _pytest("tests/unit/test_sim_deliveries.py", "new_holder"),
        instead="five deliveries and no more: nothing is redelivered by itself, but a look can be forgotten",
    ),
    Mutant(
        20,
        "no account check on reading a job",
        "integration",
        _pytest("tests/integration/test_gateway_accounts.py", "every_id_route"),
        instead="the account check of event streams: our callers poll jobs",
    ),
    Mutant(
        21,
        "flock kept for a supervisor that froze on its way in",
        "unit",
        _pytest("tests/unit/test_sim_world_guard.py"),
    ),
    Mutant(
        22, "wish to cancel overwritten by an end", "integration", _pytest("tests/integration/test_worker_claims.py")
    ),
    Mutant(
        23, "version that dies loading counted against its jobs", "unit", _pytest("tests/unit/test_worker_execution.py")
    ),
    Mutant(24, "broken text in a frame not refused", "fuzzing", _pytest("tests/unit/test_fuzz_targets.py")),
    Mutant(25, "late PONG ends the reader", "integration", _pytest("tests/integration/test_chaos_connection.py")),
    Mutant(26, "way out longer than the lease", "unit", _pytest("tests/unit/test_sim_world_guard.py")),
    Mutant(
        27,
        "job that kills runners makes every restart wait longer",
        "unit",
        _pytest("tests/unit/test_worker_guardedrunner.py"),
    ),
    Mutant(
        28, "runner born and dead in one breath waited for for ever", "unit", _pytest("tests/unit/test_runner_link.py")
    ),
    Mutant(
        29,
        "request that ends twice answered twice",
        "integration",
        _pytest("tests/integration/test_gateway_http2.py", "ends_twice"),
    ),
    Mutant(
        30,
        "record made from one revision written from a later one",
        "integration",
        _pytest("tests/integration/test_worker_claims.py"),
    ),
    Mutant(
        31,
        "jobs that were not claimed put back by a worker that stops",
        "integration",
        _pytest("tests/integration/test_worker_claims.py"),
    ),
    Mutant(
        32,
        "reset in the middle of reconnecting ends the client",
        "integration",
        _pytest("tests/integration/test_chaos_connection.py", "middle"),
    ),
    Mutant(33, "time of a run counted from its asking", "unit", _pytest("tests/unit/test_runner_link.py")),
    Mutant(
        34,
        "device kept by a worker that cannot keep its token",
        "integration",
        _pytest("tests/integration/test_lease_devices.py", "cannot_be_kept"),
    ),
    Mutant(35, "jobs expired by the machine's own clock", "simulation", _sim(0, 10)),
    Mutant(
        36, "run charged for its supervisor's pause", "unit", _pytest("tests/unit/test_runner_link.py", "slept_through")
    ),
    Mutant(
        37,
        "runner with a lock file of its own",
        "integration",
        _pytest("tests/integration/test_lease_guard.py", "outlives_the_guard"),
    ),
    Mutant(
        38,
        "queue that could not be opened left closed",
        "unit",
        _pytest("tests/unit/test_sim_deliveries.py", "requests_and_answers"),
    ),
    Mutant(
        39, "one death while loading ends the jobs that wait", "unit", _pytest("tests/unit/test_worker_execution.py")
    ),
    Mutant(
        40, "batches begun while the lease is at risk", "integration", _pytest("tests/integration/test_worker_risk.py")
    ),
    Mutant(
        41,
        "models loaded beside a stranger on the GPU",
        "integration",
        _pytest("tests/integration/test_nvidia_devices.py", "beside_a_stranger"),
    ),
    Mutant(
        42,
        "no second try for a load that used the memory up",
        "integration",
        _pytest("tests/integration/test_worker_memory.py"),
    ),
    Mutant(
        43,
        "lock file that its runner may write",
        "integration",
        _pytest("tests/integration/test_sandbox_holds.py", "broken_into"),
    ),
    Mutant(
        44,
        "share of a queue without regard to what is left free",
        "unit",
        _pytest("tests/unit/test_gateway_fairness.py"),
    ),
    Mutant(45, "retry of a submission placed anew", "unit", _pytest("tests/unit/test_gateway_idempotency.py")),
    Mutant(
        46,
        "absence told by a leader that was cut off",
        "integration",
        _pytest("tests/integration/test_core_majority.py"),
    ),
    Mutant(
        47,
        "guard's deadline on a clock that sleeps with the machine",
        "simulation",
        _pytest("tests/unit/test_sim_world_kernel.py", "wakes"),
    ),
    Mutant(48, "write under way taken for a loss", "integration", _pytest("tests/integration/test_lease_cut_off.py")),
    Mutant(49, "flock kept by who cannot write", "unit", _pytest("tests/unit/test_lease_machine.py")),
    Mutant(50, "place in the line lost with an answer", "unit", _pytest("tests/unit/test_lease_machine.py", "place")),
    Mutant(51, "job taken from a living holder", "simulation", _sim(0, 60)),
    Mutant(
        52,
        "flock kept after a crash, though said to be given back",
        "unit",
        _pytest("tests/unit/test_sim_world_guard.py", "flock"),
    ),
    Mutant(
        53,
        "connection of a failed attempt left open",
        "integration",
        _pytest("tests/integration/test_chaos_connection.py", "leaves_no_connection"),
    ),
    Mutant(
        54,
        "two attempts to reconnect at once",
        "integration",
        _pytest("tests/integration/test_chaos_connection.py", "ends_late"),
    ),
    Mutant(
        55,
        "board that follows from now on only",
        "integration",
        _pytest("tests/console/test_live_feed.py", "first_viewer"),
    ),
    Mutant(
        56,
        "label that means the newest version",
        "integration",
        _pytest("tests/integration/test_gateway_jobs.py", "points_at_an_older_version"),
    ),
    Mutant(
        57,
        "older state published over a newer one",
        "integration",
        _pytest("tests/console/test_outbox.py", "overtaken"),
    ),
    Mutant(58, "stored inputs dropped for a neighbour's", "simulation", _sim(0, 30)),
    Mutant(
        59,
        "slot of records removed with an open job",
        "integration",
        _pytest("tests/integration/test_worker_retention.py", "slot_stays"),
    ),
    Mutant(
        60,
        "record gone as soon as its message",
        "integration",
        _pytest("tests/integration/test_worker_retention.py", "outlives_its_message"),
    ),
    Mutant(
        61,
        "job claimed from a delivery of long ago",
        "integration",
        _pytest("tests/integration/test_worker_claims.py", "ended_and_is_forgotten"),
    ),
    Mutant(62, "job that another was given run unread", "simulation", _sim(0, 40)),
    Mutant(
        63,
        "deliveries lost with a connection not looked for",
        "unit",
        _pytest("tests/unit/test_sim_deliveries.py", "lost_delivery"),
    ),
    Mutant(
        64,
        "name of a queue whose node is cut off waited for",
        "unit",
        _pytest("tests/unit/test_sim_deliveries.py", "another_name"),
    ),
    Mutant(65, "jobs let go without a word", "unit", _pytest("tests/unit/test_sim_deliveries.py", "lets_go")),
    Mutant(
        66,
        "jobs of a dead worker not looked for",
        "simulation",
        _pytest("tests/unit/test_sim_world_runs.py", "never_comes_back"),
    ),
    Mutant(
        67,
        "only one class of a model doubted",
        "unit",
        _pytest("tests/unit/test_sim_deliveries.py", "another_name"),
    ),
    Mutant(
        68,
        "STATE read from the beginning at each turn of a first leader",
        "integration",
        _pytest("tests/integration/test_worker_reconcile.py", "first_leader"),
    ),
    Mutant(
        69,
        "TLS handshake that was cut short waited for",
        "integration",
        _pytest("tests/integration/test_core_tls.py", "gives_up_in_a_handshake"),
    ),
    Mutant(
        70,
        "search for lost jobs going on behind them",
        "integration",
        _pytest("tests/integration/test_worker_undelivered.py", "behind_the_jobs_that_are_known"),
    ),
    Mutant(
        71,
        "requests taken back to make way",
        "integration",
        _pytest("tests/integration/test_worker_intake.py", "lost_to_who_makes_way"),
    ),
)
