"""One typed, frozen settings object per process, read once from the environment in ``main``.

A program declares a subclass of :class:`Wire`. Fields it inherits are ``SIGNALBOX_<FIELD>``, its own are
``<prefix><FIELD>``. Any text also comes from a file, ``<NAME>_FILE`` (for secrets, keep them there).
An unknown ``SIGNALBOX_`` name is refused: a misspelt setting must not be a silent default.
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo, fields, replace

from signalbox.program import nkeys, redaction
from signalbox.program.errors import Misconfigured

PREFIX: Final = "SIGNALBOX_"
PROGRAM_PREFIXES: Final = ("GATEWAY_", "WORKER_", "CONSOLE_", "OUTBOUND_", "HOST_", "UP_", "RUNNER_", "DEMO_")
"""What follows ``SIGNALBOX_`` in another program's own settings, which only that program checks."""

TOOL_VARIABLES: Final = {
    "SIGNALBOX_TYK_BIN": "Path of a Tyk gateway; `make up` and the conformance suite use it if set.",
    "SIGNALBOX_NATS_BIN": "Path of a nats-server; otherwise the wheel's, otherwise the one on PATH.",
}
"""Read by tools and tests rather than by a program, so no program refuses them."""

_BOOLEANS: Final = {
    "on": True,
    "true": True,
    "1": True,
    "yes": True,
    "off": False,
    "false": False,
    "0": False,
    "no": False,
}
_SECRET: Final = {"secret": True}
_SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that every program needs to reach the others."""

    nats_url: Annotated[
        str,
        Meta(
            description="NATS servers, comma-separated: `nats://host:port` or `tls://...`. Name all: addresses "
            "that a server tells of are not connected to. One `tls://` asks all of them for TLS."
        ),
    ] = "nats://127.0.0.1:4222"
    nats_user: Annotated[str, Meta(description="NATS user of this program's role.")] = ""
    nats_password: Annotated[str, Meta(description="Its password.", extra=_SECRET)] = ""
    nats_seed: Annotated[
        str,
        Meta(
            description="Seed of this program's key at NATS, instead of a password; `SIGNALBOX_NATS_USER` is then the "
            "key's name, as `signalbox nats-users --pool` gave it, or empty: it follows from the seed.",
            extra=_SECRET,
        ),
    ] = ""
    queues_nats_user: Annotated[
        str,
        Meta(
            description="NATS user of this program in the account of the queue service; empty = queues are in the "
            "account of everything else."
        ),
    ] = ""
    queues_nats_password: Annotated[str, Meta(description="Its password.", extra=_SECRET)] = ""
    nats_ca_file: Annotated[
        str,
        Meta(
            description="PEM file of the authorities that sign the NATS servers' certificates; empty = the system's. "
            "With a file every server is asked for TLS."
        ),
    ] = ""
    key_pepper: Annotated[
        str, Meta(description="Secret that API keys are hashed with; the same for console and gateway.", extra=_SECRET)
    ] = ""
    results_kept_s: Annotated[
        float,
        Meta(
            ge=60,
            description="Records and results of ended jobs are kept at least so long where room is short: with less "
            "room than that takes, nothing more is accepted. The same for gateways and workers.",
        ),
    ] = 600.0
    records_kept_s: Annotated[
        float,
        Meta(
            ge=60,
            le=7 * 86_400,
            description="Records and results of ended jobs are kept so long where there is room. The same for workers, "
            "`signalbox topology apply` and `signalbox up`.",
        ),
    ] = 86_400.0
    sync_results_kept_s: Annotated[
        float,
        Meta(
            ge=60,
            le=86_400,
            description="Records and results of synchronous calls without an Idempotency-Key are kept so long after "
            "their end, for callers that the answer did not reach. The same for workers and console.",
        ),
    ] = 600.0
    dead_letters_kept_s: Annotated[
        float,
        Meta(
            ge=60,
            le=90 * 86_400,
            description="Dead letters and their inputs are kept so long. Read by `signalbox topology apply` and "
            "`signalbox up`; a shorter time takes effect at once.",
        ),
    ] = 14 * 86_400.0
    history_kept_s: Annotated[
        float,
        Meta(
            ge=600,
            le=90 * 86_400,
            description="The history of leases and waiters is kept so long, for strips and audit. Read by the same.",
        ),
    ] = 7 * 86_400.0
    ends_kept_s: Annotated[
        float,
        Meta(
            ge=3600,
            le=30 * 86_400,
            description="Ends of jobs in RESULTS and the log of webhooks are kept so long; with less than six days a "
            "webhook that fails is tried less often. Read by `signalbox topology apply` and `signalbox up`.",
        ),
    ] = 7 * 86_400.0
    ends_held_s: Annotated[
        float,
        Meta(
            ge=60,
            le=7 * 86_400,
            description="Records of ended jobs wait so long at most for their ends to be written to RESULTS, where "
            "somebody is subscribed and STATE is less than 0.7 full. Read by workers.",
        ),
    ] = 86_400.0
    files_kept_s: Annotated[
        float,
        Meta(ge=3600, le=30 * 86_400, description="Files of batches are kept so long. Read by the same."),
    ] = 7 * 86_400.0
    max_files_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes that an account's files of batches may take: more get 429, and a batch that writes more "
            "fails. 0 = a quarter of all the room there is. The same for gateways and outbound.",
        ),
    ] = 0
    webhook_networks: Annotated[
        tuple[str, ...],
        Meta(
            description="Private networks, as CIDRs, that webhooks may call: under any name, on any port, without TLS "
            "too. The same for gateways, console and outbound."
        ),
    ] = ()
    webhook_plain: Annotated[
        bool,
        Meta(description="Webhooks may call http:// everywhere, which anyone on the way can read. The same for them."),
    ] = False
    connect_timeout_s: Annotated[float, Meta(gt=0, description="Longest wait for the first connection to NATS.")] = 5.0
    request_timeout_s: Annotated[
        float, Meta(gt=0, description="Longest wait for NATS to answer one request or write.")
    ] = 2.0
    reconnect_wait_s: Annotated[float, Meta(gt=0, description="Pause between two attempts to reconnect to NATS.")] = (
        0.25
    )
    ping_interval_s: Annotated[
        float, Meta(gt=0, description="NATS ping period; a connection with two unanswered is given up at the third.")
    ] = 2.0
    nats_store: Annotated[
        str,
        Meta(
            description="Folder of NATS's store, where it is on this machine: new jobs get 503 while its disk has less"
            " room than `SIGNALBOX_NATS_RESERVE_BYTES`. Empty = the disk cannot be seen from here."
        ),
    ] = ""
    nats_reserve_bytes: Annotated[
        int, Meta(ge=0, description="Room on the disk of NATS that is kept for jobs that were accepted.")
    ] = 64 * 1024 * 1024
    metrics_port: Annotated[int, Meta(ge=0, le=65_535, description="Prometheus metrics on this port; 0 = none.")] = 0
    metrics_host: Annotated[
        str,
        Meta(
            description="Address metrics are served on; they need no password, so others than loopback are for a "
            "network only Prometheus reaches."
        ),
    ] = "127.0.0.1"
    log_level: Annotated[
        str, Meta(pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="Least level that is logged.")
    ] = "INFO"

    def problems(self) -> Iterator[str]:
        """Violations of rules that no type expresses, one sentence each. Programs extend this."""
        if self.records_kept_s < self.results_kept_s:
            yield f"{PREFIX}RECORDS_KEPT_S must not be below {PREFIX}RESULTS_KEPT_S"
        if self.nats_seed and self.nats_password:
            yield f"give {PREFIX}NATS_PASSWORD or {PREFIX}NATS_SEED, not both"
        for text in self.webhook_networks:
            if not _is_network(text):
                yield f"{PREFIX}WEBHOOK_NETWORKS wants networks like 10.20.0.0/16, with commas between them: not {text}"
        if not all(map(_is_server, self.nats_url.split(","))):
            yield (
                f"{PREFIX}NATS_URL wants addresses like nats://host:4222 or tls://host:4222, with commas between them"
            )


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _is_server(url: str) -> bool:
    """Whether nats-py can read the URL; its own error for one it cannot read is of no help."""
    text = url.strip()
    try:
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


S = TypeVar("S", bound=Wire)


class Setting(NamedTuple):
    """One field as its user sees it. Each has a default."""

    name: str
    field: str
    type: Any
    default: Any
    description: str
    is_secret: bool


def declared(cls: type[Wire], prefix: str) -> list[Setting]:
    """Every setting of a class, inherited ones first, each under the name it has outside."""
    inherited = {field.name for field in fields(Wire)}
    return [
        _setting((PREFIX if field.name in inherited else prefix) + field.name.upper(), field) for field in fields(cls)
    ]


def load(cls: type[S], prefix: str, env: Mapping[str, str]) -> S:
    """The settings of one program.

    env: usually ``os.environ``. Raises :class:`Misconfigured` naming every unknown variable, every value that
    does not fit and every violated rule at once. Secrets are told to :mod:`signalbox.program.redaction`.
    """
    known = declared(cls, prefix)
    faults = _unknown(known, prefix, env)
    values: dict[str, Any] = {}
    for setting in known:
        try:
            text = text_of(setting.name, env)
            if text is not None:
                if setting.is_secret:
                    redaction.know(text.strip())
                values[setting.field] = _convert(setting, text)
        except (msgspec.ValidationError, ValueError, OSError) as error:
            faults.append(f"{setting.name}: {_reason(setting, error)}")
    _refuse(faults)
    settings = named(cls(**values))
    _refuse(list(settings.problems()))
    return settings


def named(settings: S) -> S:
    """With the user that its key has at NATS, where only the key is given. Raises :class:`Misconfigured`."""
    if not settings.nats_seed or settings.nats_user:
        return settings
    return replace(settings, nats_user=nkeys.user(nkeys.public(settings.nats_seed)))


def describe(settings: Wire, prefix: str) -> str:
    """One ``NAME=value`` a line, for ``--check-config``. Secrets show only whether they are set."""
    lines = []
    for setting in declared(type(settings), prefix):
        value = getattr(settings, setting.field)
        is_hidden = setting.is_secret and value
        lines.append(f"{setting.name}={'(set)' if is_hidden else shown(value)}")
    return "\n".join(lines)


def _setting(name: str, field: FieldInfo) -> Setting:
    notes = (
        [a for a in get_args(field.type)[1:] if isinstance(a, Meta)] if (get_origin(field.type) is Annotated) else []
    )
    return Setting(
        name=name,
        field=field.name,
        type=field.type,
        default=field.default,
        description=next((n.description for n in notes if n.description), ""),
        is_secret=any((n.extra or {}).get("secret") for n in notes),
    )


def text_of(name: str, env: Mapping[str, str]) -> str | None:
    """What a variable says, or the file that it names with ``_FILE``; None = neither is set.

    Raises :class:`ValueError` where both are, :class:`OSError` for a file that cannot be read.
    """
    from_file = env.get(f"{name}_FILE")
    text = env.get(name)
    if from_file and text:
        msg = f"give {name} or {name}_FILE, not both"
        raise ValueError(msg)
    if from_file:
        return Path(from_file).read_text(encoding="utf-8").strip()
    return text


def _convert(setting: Setting, text: str) -> Any:
    bare = get_args(setting.type)[0] if get_origin(setting.type) is Annotated else setting.type
    value: Any = text.strip()
    if get_origin(bare) is tuple:
        value = tuple(part.strip() for part in text.split(",") if part.strip())
    elif bare is bool:
        value = _BOOLEANS.get(text.strip().lower(), text)
    return msgspec.convert(value, setting.type, strict=bare is bool or bare is str)


def _reason(setting: Setting, error: Exception) -> str:
    if setting.is_secret:
        return "the secret cannot be read" if isinstance(error, OSError) else "not a valid value"
    return str(error)


def _unknown(known: Sequence[Setting], prefix: str, env: Mapping[str, str]) -> list[str]:
    names = {s.name for s in known} | {f"{s.name}_FILE" for s in known} | set(TOOL_VARIABLES)
    others = tuple(f"{PREFIX}{p}" for p in PROGRAM_PREFIXES if f"{PREFIX}{p}" != prefix)
    unknown = sorted(n for n in env if n.startswith(PREFIX) and n not in names and not n.startswith(others))
    return [f"{name} is not a setting{_nearest(name, names)}" for name in unknown]


def _nearest(name: str, names: set[str]) -> str:
    import difflib  # only on the way to a refusal

    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _refuse(faults: Sequence[str]) -> None:
    if faults:
        raise Misconfigured("; ".join(faults), faults=list(faults))


def shown(value: Any) -> str:
    """A value as it is written in a variable."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
