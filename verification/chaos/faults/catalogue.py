"""Every kind of fault a storm chooses from, those that cannot be done here with the reason."""

from collections.abc import Sequence

from verification.chaos.environment import namespace
from verification.chaos.faults import connections, servers, workers
from verification.chaos.faults.fault import Fault
from verification.chaos.rig.rig import Rig


def catalogue(*, nodes: int) -> Sequence[Fault[Rig]]:
    """With their weights. nodes: of NATS, 1 or 3."""
    of_three = "" if nodes > 1 else "one node has no other to lead"
    return (
        Fault("kill supervisor", 14, workers.kill_supervisor),
        Fault("kill standby", 4, workers.kill_standby),
        Fault("kill guard", 6, workers.kill_guard),
        Fault("kill runner", 6, workers.kill_runner),
        Fault("pause supervisor", 6, workers.pause_supervisor),
        Fault("pause runner", 5, workers.pause_runner),
        Fault("freeze supervisor", 2, workers.freeze_supervisor),
        Fault("freeze successor", 2, workers.freeze_successor),
        Fault("freeze guard", 2, workers.freeze_guard),
        Fault("roll worker", 4, workers.roll_worker),
        Fault("ask release", 6, workers.ask_release),
        Fault("delete lease", 5, workers.delete_lease),
        Fault("kill gateway", 5, servers.kill_gateway),
        Fault("pause gateway", 4, servers.pause_gateway),
        Fault("kill nats", 5, servers.kill_nats),
        Fault("kill leader", 6, servers.kill_leader, of_three),
        Fault("pause nats", 4, servers.pause_nats),
        Fault("reset", 8, connections.reset),
        Fault("hang up", 5, connections.hang_up),
        Fault("refuse", 4, connections.refuse),
        Fault("half open", 4, connections.half_open),
        Fault("one way", 6, connections.one_way),
        Fault("latency", 5, connections.latency),
        Fault("partition", 2, connections.partition),
        Fault("packets lost", 5, connections.drop_packets, namespace.reason_against()),
    )
