"""One line for each cause of alarms: what stands for several things at once is told once, with what to do. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from console.board.rows import Alarm

NAMED: Final = 5
"""Things that one line names."""


class Cause(NamedTuple):
    """A cause that several alarms may have. text: of all of them, with ``{names}``. href: where to go then.

    hint: what to do, or where to look; of one alarm too.
    """

    text: str
    href: str
    hint: str


CAUSES: Final = {
    "unserved": Cause(
        "{count} models have jobs that wait, and no able worker: {names}.",
        "/workers",
        "Start or resume a worker that may serve it, or give the model replicas.",
    ),
    "old": Cause(
        "The oldest jobs of {count} models have waited more than a minute: {names}.",
        "/jobs?state=queued",
        "The job's page says why it waits.",
    ),
    "behind": Cause(
        "Jobs of {count} models wait behind others that keep their GPU busy: {names}.",
        "/workers",
        "It passes by itself; another worker, or fewer models on this one, makes it shorter.",
    ),
    "paused": Cause(
        "{count} models are paused while jobs wait: {names}.", "/models?state=paused", "Resume on the model's page."
    ),
    "lost-jobs": Cause(
        "Jobs of {count} models ran on workers that are gone: {names}.",
        "/jobs?state=running",
        "Nothing is lost; start a worker if none serves them.",
    ),
    "load": Cause(
        "{count} versions do not load: {names}.",
        "/models?state=failed",
        "Mend or replace the version, or give it more memory; its page has the whole reason.",
    ),
    "fetch": Cause(
        "{count} versions cannot be fetched: {names}.",
        "/repositories",
        "The page of the repository says whether its place answers.",
    ),
    "rollout": Cause(
        "{count} versions do not load, so their callers stay with older ones: {names}.",
        "/models?state=failed",
        "",
    ),
    "split": Cause("{count} candidates were rolled back by themselves: {names}.", "/models", ""),
    "shadow": Cause(
        "{count} candidates do not answer as the versions in whose shadow they run: {names}.",
        "/models",
        "The model's page has the figures.",
    ),
    "expired": Cause(
        "The leases on {count} devices ran out, and no worker has taken them over: {names}.",
        "/workers",
        "Look whether its workers run; the next one that starts takes it over.",
    ),
    "lost": Cause(
        "{count} devices are held by workers that are lost: {names}.",
        "/workers",
        "It is taken over when the lease runs out.",
    ),
    "low": Cause(
        "The leases on {count} devices were not renewed in time: {names}.",
        "/workers",
        "Its holder's host may be overloaded, or cut off from NATS.",
    ),
    "hook": Cause(
        "{count} webhooks were given up: {names}.",
        "/results/webhooks",
        "Its page has the receiver's answers; enable it there once the receiver works.",
    ),
    "queue-failed": Cause(
        "{count} of the queues could not be made as they are set: {names}.",
        "/queues",
        "The queue's page has the reason; change its settings, or give NATS more room.",
    ),
    "queue-away": Cause(
        "{count} of the queues have no leader in NATS, so that nothing is put or taken: {names}.",
        "/queues",
        "Bring the node of NATS back that is away; queues of three instances outlast the loss of one.",
    ),
    "queue-full": Cause(
        "{count} of the queues are full, so that puts are refused: {names}.",
        "/queues",
        "Have consumers commit, purge it, or give it more room; its page says who watches.",
    ),
    "idle": Cause(
        "{count} devices are held and compute nothing while jobs wait: {names}.",
        "/workers",
        "Ask its holder to release it, or restart that worker.",
    ),
}
"""By the first part of an alarm's key."""


def grouped(found: Mapping[str, Alarm]) -> dict[str, Alarm]:
    """The alarms with those of one cause as one, under the cause as its key; one alone stays as it is."""
    by_cause: dict[str, list[str]] = {}
    for key in found:
        by_cause.setdefault(key.partition(":")[0], []).append(key)
    shown: dict[str, Alarm] = {}
    for name, keys in by_cause.items():
        cause = CAUSES.get(name)
        if cause is None:
            shown |= {key: found[key] for key in keys}
        elif len(keys) == 1:
            shown[keys[0]] = found[keys[0]]
        else:
            shown[name] = _together(cause, [found[key] for key in keys])
    return shown


def hint(key: str) -> str:
    """What to do about an alarm, or where to look; empty where its text says so."""
    cause = CAUSES.get(key.partition(":")[0])
    return cause.hint if cause is not None else ""


def _together(cause: Cause, alarms: list[Alarm]) -> Alarm:
    things = sorted({alarm.what for alarm in alarms})
    rest = len(things) - NAMED
    names = ", ".join(things[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
    level = "error" if any(alarm.level == "error" for alarm in alarms) else "warning"
    return Alarm(level, cause.text.format(count=len(things), names=names), href=cause.href, hint=cause.hint)
