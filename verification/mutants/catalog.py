"""The mutants: bugs that a harness worth its name must find, each a patch, and the command that must find it.

Numbers 1 to 20 follow the list that the project's promises came with, adapted to how Signalbox is built. Later ones are
bugs that were found. docs/proofs.md says of each which kind of harness finds it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

PATCHES: Final = Path(__file__).with_name("patches")
Command = tuple[str, ...]
"""Arguments of Python that pass without the patch and fail with it."""


def _pytest(files: str, words: str = "") -> Command:
    """Files, and what their tests' names hold."""
    chosen = ("-k", words) if words else ()
    quiet = ("-q", "-x", "-p", "no:cacheprovider", "--depth", "full")
    return ("-m", "pytest", *quiet, *files.split(), *chosen)


def _scope(faults: int) -> Command:
    return ("-m", "verification.scope", "--workers", "2", "--jobs", "1", "--faults", str(faults))


def _sim(first: int, seeds: int) -> Command:
    return ("-m", "verification.simulation", "--first", str(first), "--seeds", str(seeds), "--jobs", "1")


COMMANDS: Final[Mapping[int, Command]] = {
    1: _scope(1),
    2: _scope(1),
    3: _pytest("tests/unit/workers/lease/test_lease_machine.py"),
    4: _sim(0, 4),
    5: _pytest("tests/integration/workers/test_worker_claims.py"),
    6: _pytest("tests/unit/workers/lease/test_lease_machine.py"),
    7: _pytest("tests/integration/workers/test_lease_devices.py", "frozen_holder_is_fenced"),
    8: _scope(1),
    9: _pytest("tests/integration/workers/test_lease_guard.py", "end_of_the_guard"),
    10: _pytest("tests/integration/workers/test_sandbox_holds.py"),
    11: _pytest("tests/integration/workers/test_nvidia_devices.py", "dirty_gpu"),
    12: _pytest("tests/unit/workers/lease/test_lease_machine.py", "another_host"),
    13: _pytest(
        "tests/unit/gateway_plugin/admission/test_gateway_idempotency.py "
        "tests/integration/gateway_plugin/test_gateway_idempotency.py"
    ),
    14: _pytest("tests/integration/workers/test_lease_devices.py", "killed_holder"),
    15: _pytest("tests/unit/workers/serving/test_worker_loop.py"),
    16: _pytest("tests/unit/workers/test_worker_settings.py", "never_imports"),
    17: _pytest("tests/integration/workers/test_worker_claims.py"),
    18: _pytest("tests/integration/workers/test_lease_devices.py", "learns_of_a_release"),
    19: _pytest("tests/unit/verification/simulation/test_sim_deliveries.py", "new_holder"),
    20: _pytest("tests/integration/gateway_plugin/test_gateway_accounts.py", "every_id_route"),
    21: _pytest("tests/unit/verification/simulation/test_sim_world_guard.py"),
    22: _pytest("tests/integration/workers/test_worker_claims.py"),
    23: _pytest("tests/unit/workers/serving/test_worker_execution.py"),
    24: _pytest("tests/unit/verification/fuzz/test_fuzz_targets.py"),
    25: _pytest("tests/integration/verification/test_chaos_connection.py"),
    26: _pytest("tests/unit/verification/simulation/test_sim_world_guard.py"),
    27: _pytest("tests/unit/workers/device/test_worker_guardedrunner.py"),
    28: _pytest("tests/unit/workers/runner/test_runner_link.py"),
    29: _pytest("tests/integration/gateway_plugin/test_gateway_http2.py", "ends_twice"),
    30: _pytest("tests/integration/workers/test_worker_claims.py"),
    31: _pytest("tests/integration/workers/test_worker_claims.py"),
    32: _pytest("tests/integration/verification/test_chaos_connection.py", "middle"),
    33: _pytest("tests/unit/workers/runner/test_runner_link.py"),
    34: _pytest("tests/integration/workers/test_lease_devices.py", "cannot_be_kept"),
    35: _sim(0, 10),
    36: _pytest("tests/unit/workers/runner/test_runner_link.py", "slept_through"),
    37: _pytest("tests/integration/workers/test_lease_guard.py", "outlives_the_guard"),
    38: _pytest("tests/unit/verification/simulation/test_sim_deliveries.py", "requests_and_answers"),
    39: _pytest("tests/unit/workers/serving/test_worker_execution.py"),
    40: _pytest("tests/integration/workers/test_worker_risk.py"),
    41: _pytest("tests/integration/workers/test_nvidia_devices.py", "beside_a_stranger"),
    42: _pytest("tests/integration/workers/test_worker_memory.py"),
    43: _pytest("tests/integration/workers/test_sandbox_holds.py", "broken_into"),
    44: _pytest("tests/unit/gateway_plugin/admission/test_gateway_fairness.py"),
    45: _pytest("tests/unit/gateway_plugin/admission/test_gateway_idempotency.py"),
    46: _pytest("tests/integration/signalbox/test_core_majority.py"),
    47: _pytest("tests/unit/verification/simulation/test_sim_world_kernel.py", "wakes"),
    48: _pytest("tests/integration/workers/test_lease_cut_off.py"),
    49: _pytest("tests/unit/workers/lease/test_lease_machine.py"),
    50: _pytest("tests/unit/workers/lease/test_lease_machine.py", "place"),
    51: _sim(0, 60),
    52: _pytest("tests/unit/verification/simulation/test_sim_world_guard.py", "flock"),
    53: _pytest("tests/integration/verification/test_chaos_connection.py", "leaves_no_connection"),
    54: _pytest("tests/integration/verification/test_chaos_connection.py", "ends_late"),
    55: _pytest("tests/console/test_live_feed.py", "first_viewer"),
    56: _pytest("tests/integration/gateway_plugin/test_gateway_jobs.py", "points_at_an_older_version"),
    57: _pytest("tests/console/test_outbox.py", "overtaken"),
    58: _sim(0, 30),
    59: _pytest("tests/integration/workers/test_worker_retention.py", "slot_stays"),
    60: _pytest("tests/integration/workers/test_worker_retention.py", "outlives_its_message"),
    61: _pytest("tests/integration/workers/test_worker_claims.py", "ended_and_is_forgotten"),
    62: _sim(0, 40),
    63: _pytest("tests/unit/verification/simulation/test_sim_deliveries.py", "lost_delivery"),
    64: _pytest("tests/unit/verification/simulation/test_sim_deliveries.py", "another_name"),
    65: _pytest("tests/unit/verification/simulation/test_sim_deliveries.py", "lets_go"),
    66: _pytest("tests/unit/verification/simulation/test_sim_world_runs.py", "never_comes_back"),
    67: _pytest("tests/unit/verification/simulation/test_sim_deliveries.py", "another_name"),
    68: _pytest("tests/integration/workers/test_worker_reconcile.py", "first_leader"),
    69: _pytest("tests/integration/signalbox/test_core_tls.py", "gives_up_in_a_handshake"),
    70: _pytest("tests/integration/workers/test_worker_undelivered.py", "behind_the_jobs_that_are_known"),
    71: _pytest("tests/integration/workers/test_worker_intake.py", "lost_to_who_leaves_shared_models"),
    72: _pytest("tests/integration/workers/test_worker_diskcache.py", "all_bytes_at_once"),
    73: _pytest("tests/console/test_noticing_plan.py"),
    74: _pytest("tests/console/test_noticing.py", "read_only_mode"),
    75: _pytest("tests/unit/workers/diskcache/test_worker_cacheroom.py"),
    76: _pytest("tests/unit/signalbox/program/test_program_tasks.py"),
    77: _pytest("tests/console/test_noticing.py", "one_name_at_once"),
    78: _pytest("tests/integration/workers/test_worker_diskcache.py", "idle_models_leave"),
    79: _pytest("tests/integration/gateway_plugin/test_queue_watches.py", "closed_watch"),
    80: _pytest("tests/integration/gateway_plugin/test_queue_watches.py", "nats_has_forgotten"),
    81: _pytest("tests/unit/gateway_plugin/queues/test_pulling.py", "taken_back_first"),
    82: _pytest("tests/unit/gateway_plugin/queues/test_sharing.py", "free_before"),
    83: _pytest("tests/integration/gateway_plugin/test_queue_watches.py", "commit_at_another_plugin"),
}


class Mutant(NamedTuple):
    """One of them."""

    number: int
    command: Command

    @property
    def patch(self) -> Path:
        """The file; its name begins with the number."""
        (found,) = PATCHES.glob(f"{self.number:02}-*.patch")
        return found

    @property
    def name(self) -> str:
        """What is wrong, as the patch is called."""
        return self.patch.stem.partition("-")[2].replace("-", " ")


MUTANTS: Final = tuple(Mutant(number, command) for number, command in COMMANDS.items())
