"""Documents of the tasks that one worker does for all."""

from signalbox.wire.messages import Doc


class LeaderLeaseRecord(Doc, frozen=True, kw_only=True):
    """KV ``duties``: the leader lease of a task that one worker does for all, with a TTL. Written only by
    compare-and-set."""

    owner: str
    boot: str
    since: float = 0.0


class ReconcilerPosition(Doc, frozen=True, kw_only=True):
    """KV ``duties``: where the next reconciler reads on, however long there was none. An older one is right too.

    created: of the streams that the sequences are of. read_to: every record of ``STATE`` below it was read. due_at:
    when the first of the delayed jobs that were read of is due, or the first deadline of those that wait has passed
    (UTC seconds); 0 = nothing waits. Where there is no worker then a host starts one.
    """

    created: str = ""
    jobs_seq: int = 0
    state_seq: int = 0
    read_to: int = 0
    due_at: float = 0.0
