"""What a model's queue is called by how it is served now: one word for board, pages and REST. Pure."""

from typing import NamedTuple

from console.board.rows import Queue


class Condition(NamedTuple):
    """state: a word of the stylesheet. label: what a person reads. why: more of it, or empty."""

    state: str
    label: str
    why: str = ""


def of(row: Queue) -> Condition:
    """From what was decided on the model, and what workers say of it."""
    if not row.is_known:
        return Condition("unknown", "unknown model", "jobs of a model the console does not know")
    if not row.is_enabled:
        return Condition("disabled", "disabled")
    if not row.replicas:
        return Condition("none", "no replicas", "refuses new jobs")
    if row.is_paused:
        why = f"by {row.paused_by or 'an operator'}" + (f": {row.paused_reason}" if row.paused_reason else "")
        return Condition("paused", "paused", why)
    if not row.is_runnable:
        return Condition("failed", "cannot be run", "no signature of its versions can be called with dense tensors")
    if row.lost:
        return Condition("lost", "worker gone", "the worker that ran its jobs is gone")
    if row.behind:
        return Condition("waiting", f"behind {row.behind}", f"a worker has its jobs, and does {row.behind} first")
    return _in_memory(row)


def _in_memory(row: Queue) -> Condition:
    """By where it is in memory, or why it is not."""
    if row.ready:
        label = f"ready {row.ready}/{row.replicas}" if row.ready < row.replicas else "ready"
        return Condition("ready", label, f"in memory on {row.ready} of {row.replicas} GPUs")
    if row.loading:
        return Condition("loading", "loading")
    if row.fetching:
        if row.fetch_fault:
            return Condition("failed", "cannot be fetched", row.fetch_fault.rstrip("."))
        why = "its files are on their way to a GPU's host"
        return Condition("fetching", "fetching", f"{why}: {row.fetched}" if row.fetched else why)
    if row.failed:
        return Condition("failed", "does not load", row.load_fault.rstrip(".") or "its last load failed")
    return Condition("cold", "not loaded", "no GPU has it in memory")
