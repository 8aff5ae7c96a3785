"""What an audit row says, in words: one table of acts and one of the fields that services write.

A test reads every service for the fields it writes, so a field without words fails the build and none is shown raw.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from console.accounts.acts import Act
from console.audit import units
from console.audit.models import AuditEntry
from console.audit.units import Names, Unit, bounded, of_count, plain

ACTS: Final[dict[Act, str]] = {
    Act.MODELS_REGISTER: "add a version",
    Act.MODELS_SETTINGS: "model settings",
    Act.MODELS_ROLLOUT: "roll-out",
    Act.MODELS_APPROVE: "approval",
    Act.MODELS_DELETE: "deletion of a model",
    Act.MODELS_TRY: "try a model",
    Act.REPOSITORIES_MANAGE: "repository",
    Act.KEYS_MANAGE: "API key",
    Act.ACCOUNTS_MANAGE: "account",
    Act.ACCOUNTS_DELETE: "state of an account",
    Act.JOBS_CANCEL: "cancel",
    Act.JOBS_RETRY: "retry",
    Act.JOBS_CHANGE: "change a job",
    Act.JOBS_DELETE: "delete a job",
    Act.JOBS_PAYLOAD: "read input or output",
    Act.JOBS_REDRIVE: "redrive",
    Act.JOBS_DISCARD: "discard",
    Act.RESULTS_MANAGE: "subscription or webhook",
    Act.RESULTS_SWITCH: "results on or off",
    Act.RESULTS_DELIVER: "deliver again",
    Act.BATCHES_STEER: "batch",
    Act.WORKERS_DRAIN: "drain",
    Act.QUEUES_PAUSE: "pause",
    Act.QUEUES_MANAGE: "queue",
    Act.QUEUES_REDRIVE: "redrive or reopen a queue",
    Act.QUEUES_PURGE: "purge a queue",
    Act.LANES_RELEASE: "ask to release",
    Act.RESIDENCY_LOAD: "load or evict",
    Act.RESIDENCY_PIN: "pin",
    Act.SYSTEM_READ_ONLY: "read-only mode",
    Act.USERS_MANAGE: "operator",
    Act.TOKENS_OWN: "own token or password",
    Act.TOKENS_MANAGE: "somebody's token",
    Act.VIEWS_OWN: "own view or shortcuts",
    Act.VIEWS_SHARE: "shared view",
}
"""Each act that changes something, as a heading of what was done."""


class Field(NamedTuple):
    """label: in place of the raw name. unit: of the values. is_state: what was before goes without saying."""

    label: str
    unit: Unit = plain
    is_state: bool = False


def _switch(label: str) -> Field:
    return Field(label, units.switch, is_state=True)


FIELDS: Final[dict[str, Field]] = {
    "access": Field("who may call"),
    "account": Field("account", units.named),
    "accounts": Field("accounts", units.named),
    "act": Field("act"),
    "adopted": Field("adopted as"),
    "asked": Field("asked"),
    "after": Field("after the redrive", units.named),
    "approved_operations": Field("operations approved", units.reasons),
    "as": Field("as"),
    "autoscale": _switch("autoscaling"),
    "autoscale_max": Field("most replicas"),
    "autoscale_min": Field("least replicas"),
    "awaits_approval": Field("waits for approval", units.reasons),
    "base": Field("other version", units.version),
    "base_path": Field("folder"),
    "bytes": Field("size", units.size),
    "cancel": Field("cancellation"),
    "candidate": Field("candidate", units.version),
    "cpu": Field("cores"),
    "days": Field("valid for", of_count("day")),
    "dead_message_policy": Field("dead items go to"),
    "deadline_at": Field("deadline", units.instant),
    "deadline_s": Field("deadline", units.duration),
    "default": Field("default version", units.version),
    "default_version": Field("default version", units.version),
    "defaults": Field("settings of new models"),
    "deleted": Field("deleted", units.version),
    "description": Field("description"),
    "differs": Field("difference"),
    "digest": Field("digest", units.digest),
    "done": Field("done", of_count("job")),
    "evict": Field("evicted"),
    "evidence": Field("figures"),
    "expires_at": Field("ends", units.instant),
    "grace_s": Field("grace", units.duration),
    "group": Field("group"),
    "halted": Field("had been rolled back"),
    "has_shortcuts": _switch("single-key shortcuts"),
    "header": Field("callers told apart by header", bounded(plain, "their key")),
    "host": Field("host"),
    "hosts": Field("hosts", bounded(plain, "all")),
    "idempotency_keys": Field("idempotency keys", of_count("key", none="as the gateways are set")),
    "imported": Field("configuration of TensorFlow Serving"),
    "instance": Field("replicas"),
    "is_active": Field("may log in", is_state=True),
    "is_default": Field("becomes the default"),
    "is_enabled": Field("takes requests", is_state=True),
    "is_noticed": _switch("noticing of new models"),
    "is_on": _switch("on"),
    "is_read_only": _switch("read-only mode"),
    "is_rear": Field("of the rear queue"),
    "is_service": Field("for programs"),
    "is_shared": _switch("shared"),
    "issuer": Field("sign-on by"),
    "items": Field("items", of_count("item")),
    "job": Field("job"),
    "jobs": Field("jobs"),
    "key": Field("key", units.named),
    "labels": Field("labels"),
    "left": Field("recovery codes left"),
    "letters": Field("dead letters"),
    "list": Field("list"),
    "load": Field("loaded", units.version),
    "marker": Field("marker of a whole version"),
    "max_batch_delay_ms": Field("longest wait for company", units.duration_ms),
    "max_batch_size": Field("rows in one run"),
    "max_delivery": Field("attempts"),
    "max_idle_s": Field("longest without a commit", bounded(units.duration, "no limit")),
    "max_payload_bytes": Field("largest inputs", units.size),
    "max_queue": Field("most waiting jobs"),
    "memory": Field("memory", of_count("MB", "MB")),
    "memory_ratio": Field("sink's part of the memory", units.share),
    "min_replica": Field("least replicas"),
    "model": Field("model", bounded(plain, "every model")),
    "models": Field("models", units.models),
    "models_deleted": Field("models deleted"),
    "models_published": Field("models published"),
    "name": Field("name"),
    "networks": Field("networks", bounded(plain, "everywhere")),
    "note": Field("note"),
    "of": Field("of"),
    "overlap_days": Field("old one goes on for", of_count("day", none="no time")),
    "owner": Field("ask about it"),
    "password": Field("password"),
    "path": Field("folder"),
    "per_s": Field("rate counted over", units.duration),
    "policy": Field("versions served", units.policy),
    "prefetch": Field("loaded ahead", units.version),
    "priority": Field("priority"),
    "promote": Field("promoted"),
    "query": Field("filter", bounded(plain, "none")),
    "queues": Field("queues", bounded(plain, "all of its account")),
    "queue_backlog": Field("backlog of a replica", of_count("job", none="not looked at")),
    "queue_bytes": Field("bytes in queues", bounded(units.size, "as its queues take")),
    "quota": Field("quota", of_count("request", none="no limit")),
    "quota_window_s": Field("quota counted over", units.duration),
    "rate": Field("rate", of_count("request", none="no limit")),
    "read": Field("read"),
    "redriven_as": Field("new job", units.named),
    "refused": Field("refused", of_count("job")),
    "replaced_by": Field("new key", units.named),
    "replicas": Field("replicas"),
    "report": Field("reported of"),
    "repository": Field("repository"),
    "resource": Field("resource group"),
    "result_bytes": Field("results kept", bounded(units.size, "as the gateways are set")),
    "role": Field("role"),
    "roll back": Field("rolled back"),
    "rows_independent": _switch("requests joined"),
    "scale_down_window_s": Field("scale-down window", units.duration),
    "scale_to_zero_grace_s": Field("grace at zero", units.duration),
    "scale_tolerance": Field("tolerance of targets", units.share),
    "scale_up_activation": Field("activation replicas"),
    "scale_up_window_s": Field("scale-up window", units.duration),
    "scopes": Field("scopes"),
    "secret": Field("secret"),
    "second_factor": Field("second factor"),
    "services": Field("services"),
    "settle_s": Field("settling", units.duration),
    "shadow": Field("shadow runs", units.share),
    "side": Field("side"),
    "signature": Field("signature"),
    "sink_auto_evict": _switch("sink drops its oldest"),
    "sink_max_length": Field("items in the sink", bounded(plain, "as the memory allows")),
    "sink_max_payload_size_kb": Field("largest item in the sink", of_count("kB", "kB", "as the memory allows")),
    "size_bytes": Field("size", units.size),
    "source_auto_evict": _switch("source drops its oldest"),
    "source_max_length": Field("items in the source", bounded(plain, "as the memory allows")),
    "source_max_payload_size_kb": Field("largest item in the source", of_count("kB", "kB", "as the memory allows")),
    "split": Field("split of"),
    "started": Field("started"),
    "state": Field("state"),
    "stopped": Field("stopped"),
    "stored_bytes": Field("stored inputs", bounded(units.size, "as the gateways are set")),
    "subject": Field("signed on as"),
    "sync_wait_s": Field("wait of synchronous callers", units.duration),
    "target_wait_s": Field("target wait", units.duration),
    "timeout_s": Field("run timeout", units.duration),
    "tokens": Field("API tokens"),
    "tokens_ended": Field("API tokens ended"),
    "tolerance": Field("tolerance"),
    "undo": Field("taken back"),
    "undo_until": Field("may be taken back until", units.instant),
    "until": Field("until", units.instant),
    "url": Field("place"),
    "version": Field("version", units.version),
    "versions": Field("versions", units.versions),
    "waiting": Field("waiting calls", of_count("call", none="as the gateways are set")),
    "warm_ups": Field("warm-up requests"),
    "webhook_hosts": Field("hosts that its jobs may name"),
    "weight": Field("share of callers", units.share),
    "with_version": Field("run with", units.version),
    "would_need_approval": Field("would need approval", units.reasons),
}
"""Words of each field; of one act they may differ: :data:`OF_ACT`."""
OF_ACT: Final[dict[tuple[str, str], Field]] = {
    (Act.QUEUES_PAUSE, "is_on"): _switch("pause"),
    (Act.QUEUES_MANAGE, "max_delivery"): Field("deliveries of an item", bounded(plain, "no limit")),
    (Act.WORKERS_DRAIN, "is_on"): _switch("drain"),
    (Act.RESIDENCY_PIN, "is_on"): _switch("pin"),
    (Act.RESULTS_SWITCH, "is_on"): _switch("results"),
    (Act.RESULTS_MANAGE, "url"): Field("URL"),
    (Act.RESULTS_MANAGE, "overlap_h"): Field("old one goes on for", of_count("hour", none="no time")),
    (Act.MODELS_DELETE, "undo"): Field("taken back", units.version),
}
_DIGEST_OF: Final = "digest of "


class Change(NamedTuple):
    """One line of what an act changed. before: empty where it goes without saying. after: empty where only asked."""

    label: str
    before: str
    after: str


def heading(act: str) -> str:
    """What an act is called; an act of another release by its own name."""
    return ACTS[Act(act)] if act in ACT_NAMES else act


def changes(entry: AuditEntry, names: Names) -> Iterator[Change]:
    """What the act changed, or asked for. names: what the ids of :func:`ids` stand for."""
    for name, before, after in entry.changes:
        field = field_of(entry.act, name)
        is_worded = entry.is_done and not field.is_state and (not units.is_nothing(before) or name in entry.before)
        was = field.unit(before, names) if is_worded else ""
        yield Change(field.label, was, _value(after, field, names))


def in_one_line(entry: AuditEntry, names: Names) -> str:
    """All of it: ``replicas: 1 -> 3; run timeout: 1 min``."""
    said = (
        f"{one.label}: {one.before} -> {one.after}" if one.before else f"{one.label}: {one.after}"
        for one in (changes(entry, names))
    )
    return "; ".join(said)


def field_of(act: str, name: str) -> Field:
    """Words of a field. What a roll-out writes under another name is a label; anything else loses its underscores."""
    found = OF_ACT.get((act, name)) or FIELDS.get(name)
    if found is not None:
        return found
    if name.startswith(_DIGEST_OF):
        return Field(f"digest of version {name.removeprefix(_DIGEST_OF)}", units.digest)
    if act == Act.MODELS_ROLLOUT:
        return Field(f"label “{name}”", units.version)
    return Field(name.removeprefix("is_").replace("_", " "))


def ids(entries: Iterable[AuditEntry]) -> set[str]:
    """Every id in what these rows are about, and say, that may have a name: of accounts and keys."""
    found: set[str] = set()
    for entry in entries:
        if entry.target_kind in {"account", "key"}:
            found.add(entry.target)
        for name, value in (*entry.before.items(), *entry.after.items()):
            if field_of(entry.act, name).unit is units.named and value:
                found.update(map(str, value if isinstance(value, list) else [value]))
    return found


def _value(value: Any, field: Field, names: Names) -> str:
    """A value; of a record that has fields of its own, each by its words."""
    if field.unit is plain and isinstance(value, dict) and value:
        parts = (
            f"{FIELDS[key].label} {FIELDS[key].unit(part, names)}"
            if key in FIELDS
            else f"{key.replace('_', ' ')} {plain(part, names)}"
            for key, part in value.items()
        )
        return ", ".join(parts)
    return field.unit(value, names)


ACT_NAMES: Final = frozenset(act.value for act in ACTS)
