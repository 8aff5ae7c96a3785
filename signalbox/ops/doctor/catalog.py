"""Everything the doctor can find: its severity, why it matters, how to fix it. One row per finding.

Rules say *where* and *what*; the rest is here, so that docs/operations.md can list it and a test can count it.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Severity(StrEnum):
    """high: an attacker gets in, or a guarantee is void. medium: the same after one more mistake. low: good to know."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Check(NamedTuple):
    """What is known of a finding wherever it is found."""

    severity: Severity
    why: str
    mend: str


class Finding(NamedTuple):
    """One weak setting. where: the file, variable or server. accepted: the operator's reason to accept it, or empty."""

    id: str
    where: str
    what: str
    accepted: str = ""

    @property
    def check(self) -> Check:
        """Its row in :data:`CATALOG`."""
        return CATALOG[self.id]

    @property
    def is_weak(self) -> bool:
        """Counts against a production deployment."""
        return not self.accepted and self.check.severity is not Severity.LOW


_H, _M, _L = Severity.HIGH, Severity.MEDIUM, Severity.LOW

CATALOG: Final[Mapping[str, Check]] = {
    # ---- what a program is started with
    "pepper.missing": Check(
        _H,
        "API keys are hashed with it; without one, any reader of the key bucket can test guesses.",
        "Set SIGNALBOX_KEY_PEPPER_FILE to a file with 32 random bytes or more, the same for console and gateway.",
    ),
    "pepper.short": Check(
        _H,
        "A pepper that can be guessed protects nothing.",
        "Use 32 characters or more: python3 -c 'import secrets; print(secrets.token_hex(32))'. Old keys become void.",
    ),
    "secret.shared": Check(
        _H, "One leak gives access to both.", "Give each of them a secret of its own (deploy/make_secrets.py)."
    ),
    "secret.file_open": Check(
        _M,
        "Other users of this machine can read the secret.",
        "chmod 600 the file, or keep it in a folder of mode 700.",
    ),
    "secret.in_environment": Check(
        _L,
        "A process's environment is seen by its children, by `docker inspect` and in crash reports.",
        "Give it as <NAME>_FILE.",
    ),
    "uploads.unwritable": Check(
        _M,
        "Uploads in the console fail: files are written there, and removed when an upload fails.",
        "Set SIGNALBOX_CONSOLE_UPLOADS_URL and the credentials file uploads.json: docs/repositories.md, Uploads.",
    ),
    "nats.anonymous": Check(
        _H,
        "Without users every client that reaches NATS may read every result and delete every job.",
        "Set SIGNALBOX_NATS_USER and _PASSWORD_FILE; users: signalbox nats-users.",
    ),
    "nats.password_short": Check(
        _H, "NATS has no throttle: a short password is guessed.", "Use 16 random characters or more."
    ),
    "nats.admin": Check(
        _H,
        "The admin's user may do everything; a program broken into may then, too.",
        "Run each program as its own role's user; admin is for `signalbox topology`, `backup` and `restore`.",
    ),
    "nats.plain": Check(
        _M,
        "Passwords, inputs and results cross the network readable.",
        "Use tls:// and SIGNALBOX_NATS_CA_FILE, or a network of these programs alone, and accept it with that reason.",
    ),
    "log.debug": Check(_L, "DEBUG lines are many and say more than is needed.", "SIGNALBOX_LOG_LEVEL=INFO"),
    "metrics.exposed": Check(
        _M,
        "Metrics name models, workers and loads, to any client.",
        "SIGNALBOX_METRICS_HOST=127.0.0.1, or an address only Prometheus reaches.",
    ),
    "gateway.exposed": Check(
        _H,
        "The hooks' protocol has neither encryption nor authentication: any client is believed.",
        "Listen on a unix socket or loopback, or set SIGNALBOX_GATEWAY_SECRET_FILE as well.",
    ),
    "gateway.secret_missing": Check(
        _M,
        "Another process that reaches the plugin is taken for Tyk.",
        "Set SIGNALBOX_GATEWAY_SECRET_FILE and the same text as `config_data.secret` of the API definition.",
    ),
    "gateway.socket_open": Check(
        _H,
        "Every user of the machine can talk to the plugin as if it were Tyk.",
        "SIGNALBOX_GATEWAY_SOCKET_MODE=0660, in a folder of mode 0750.",
    ),
    "gateway.stale_keys": Check(
        _M, "A revoked key works so long when NATS is cut off.", "SIGNALBOX_GATEWAY_STALE_KEYS_S=15"
    ),
    "console.key_missing": Check(
        _M,
        "Sessions end, and operators' tokens, when the key kept in the data folder is lost.",
        "Set SIGNALBOX_CONSOLE_SECRET_KEY_FILE.",
    ),
    "console.key_short": Check(
        _H, "Who guesses the key signs sessions and operators' tokens.", "Use 50 random characters or more."
    ),
    "console.any_host": Check(
        _H,
        "A forged Host header poisons links and caches, and undoes the origin check of the websocket.",
        "Name each host in SIGNALBOX_CONSOLE_ALLOWED_HOSTS.",
    ),
    "console.no_https": Check(
        _H,
        "Passwords and session cookies cross the network readable.",
        "Serve it behind TLS with SIGNALBOX_CONSOLE_IS_HTTPS=on, or publish it on loopback only and accept this.",
    ),
    "console.forged_proxy": Check(
        _M,
        "Without a proxy that strips it, any client writes X-Forwarded-For, and so dodges the login throttle.",
        "SIGNALBOX_CONSOLE_TRUST_PROXY=off, or listen where only the proxy reaches.",
    ),
    "console.plain_origin": Check(
        _M, "A form posted from an http origin can be altered on the way.", "Trust https origins only."
    ),
    "console.long_session": Check(
        _M, "A stolen cookie works so long.", "SIGNALBOX_CONSOLE_SESSION_S=28800 and SIGNALBOX_CONSOLE_IDLE_S=1800"
    ),
    "console.loose_throttle": Check(
        _M,
        "So many guesses in five minutes are a dictionary in a week.",
        "SIGNALBOX_CONSOLE_LOGIN_PER_ACCOUNT=5, _PER_ADDRESS=20",
    ),
    "console.weak_admin": Check(
        _H,
        "The first admin's password is the first one tried.",
        "Leave it empty (one is made), or use 12 characters or more.",
    ),
    "console.any_path": Check(
        _L,
        "Who may register models can name any folder the console can read.",
        "SIGNALBOX_CONSOLE_REPOSITORY_ROOTS=/var/lib/signalbox/models",
    ),
    "console.plain_database": Check(
        _M,
        "The audit crosses the network readable, or goes to a server that poses as the database.",
        "Append ?sslmode=verify-full&sslrootcert=FILE, or keep it on a network of its own and accept this.",
    ),
    "console.other_settings": Check(
        _H, "Settings of another program decide on cookies, hosts and DEBUG.", "Unset DJANGO_SETTINGS_MODULE."
    ),
    "worker.lock_in_tmp": Check(
        _H,
        "Who can remove the lock files takes the GPU's exclusion away; temporary folders are also swept.",
        "SIGNALBOX_WORKER_LOCK_DIR=/run/signalbox or another folder of the worker's user.",
    ),
    "worker.lock_open": Check(
        _H,
        "Others can replace the lock files, and so take the GPU's exclusion away.",
        "chmod 750 the folder; its owner is the worker's user.",
    ),
    "worker.lock_remote": Check(
        _H,
        "flock on a network file system does not exclude processes of other kernels reliably.",
        "Put the folder on a local file system.",
    ),
    "worker.interval_log": Check(
        _L, "It is for tests: a file that only grows.", "Unset SIGNALBOX_WORKER_INTERVAL_LOG."
    ),
    # ---- the machine
    "host.root": Check(
        _M, "A fault in a program is then a fault of the whole machine.", "Run it as a user of its own."
    ),
    "host.core_dumps": Check(
        _L, "A crash writes memory, keys and inputs included, to disk.", "ulimit -c 0, or LimitCORE=0 in the unit."
    ),
    "host.gpu_shared": Check(
        _M,
        "The driver lets programs that are not ours onto the GPU beside a holder.",
        "nvidia-smi -c EXCLUSIVE_PROCESS",
    ),
    "worker.no_sandbox": Check(
        _H,
        "A model is a program: without its sandbox it reads what the worker reads and reaches what it reaches.",
        "See docs/sandbox.md for what the kernel and the container must allow.",
    ),
    "worker.reads_everything": Check(
        _M,
        "A model may read every file the worker's user may.",
        "SIGNALBOX_WORKER_MODEL_FOLDERS=/var/lib/signalbox/models",
    ),
    "worker.runner_is_root": Check(
        _H,
        "A model's code then runs as root inside its sandbox.",
        "Run the worker as a user of its own, or set SIGNALBOX_WORKER_RUNNER_USER.",
    ),
    # ---- nats-server's configuration
    "nats.unsynced": Check(
        _H,
        "An accepted job is on disk up to two minutes after it was promised; a power cut loses it.",
        "jetstream { sync_interval: always }",
    ),
    "nats.no_users": Check(
        _H, "Any client that reaches the port may do everything.", "Include the output of `signalbox nats-users`."
    ),
    "nats.no_auth_user": Check(_H, "A client without a password becomes that user.", "Remove no_auth_user."),
    "nats.too_much": Check(
        _H,
        "A role that may do more than its program needs gives that to an intruder in it.",
        "signalbox nats-users > users.conf",
    ),
    "nats.literal_password": Check(
        _M,
        "The password is in a file that is copied, shown and kept in version control.",
        "password: $NATS_<USER>_PASSWORD from the server's environment, or a bcrypt hash.",
    ),
    "nats.monitor_exposed": Check(
        _M,
        "The monitoring port tells connections, subjects and configuration, and knows no password.",
        'http: "127.0.0.1:8222"',
    ),
    "nats.client_plain": Check(
        _M,
        "Passwords, inputs and results cross the network readable.",
        "A tls block, or an internal network, accepted with that reason.",
    ),
    "nats.cluster_open": Check(
        _M,
        "Any server that reaches the route port joins the cluster and reads every message.",
        "tls with verify: true in the cluster block (deploy/nats/nats.conf), or a network for the nodes alone, "
        "accepted with that reason.",
    ),
    "nats.trace": Check(
        _H, "nats-server then logs every message, payloads included.", "Remove trace, trace_verbose and debug."
    ),
    "nats.no_limit": Check(_M, "One client can make the server buffer what it likes.", "max_payload: 2097152"),
    "nats.unencrypted": Check(
        _L,
        "Inputs and results lie readable on the servers' disks.",
        "jetstream { cipher: aes, key: $NATS_KEY }, or an encrypted volume.",
    ),
    # ---- certificates
    "certificate.ends_soon": Check(
        _H,
        "Once it has ended, no program connects to that node any more, and no node to another.",
        "python3 deploy/make_secrets.py --renew, then reload each node (docs/certificates.md).",
    ),
    "certificate.refused": Check(
        _H,
        "Programs with these settings do not believe that node: it is as good as away.",
        "The authority in SIGNALBOX_NATS_CA_FILE, the name in SIGNALBOX_NATS_URL: docs/certificates.md.",
    ),
    # ---- a running NATS
    "nats.away": Check(
        _H, "Nothing about the running server could be examined.", "Start it, or give --offline to look at files only."
    ),
    "nats.old": Check(_H, "Older servers lack per-message TTLs and atomic batches.", "nats-server 2.12 or newer."),
    "nats.streams_differ": Check(_H, "Every promise was tested with the declared streams.", "signalbox topology apply"),
    "nats.single_copy": Check(
        _M,
        "One lost disk loses accepted jobs.",
        "Three servers and `signalbox topology apply --replicas 3`, or accept this.",
    ),
    "nats.lazy_copies": Check(
        _H,
        "From 2.15 on copies are not synced with every write: after a power cut of all nodes at once a stream may have "
        "no leader for good, accepted jobs locked in.",
        "nats-server 2.14 on every node, or power that does not fail for all at once.",
    ),
    "nats.nearly_full": Check(
        _H,
        "A full JOBS, INPUTS or STATE refuses jobs, a full PAYLOADS lets results go before their day, and a full "
        "disk stops JetStream altogether.",
        "More disk: signalbox topology apply --storage-gib, jetstream.max_file_store, and a volume of its own.",
    ),
    "nats.damaged": Check(
        _H,
        "nats-server could not read a block of a stream: each message of JOBS in it was an accepted job, each of STATE "
        "a record or a result.",
        "Look at the disk. The console ends the jobs that are lost and counts them on the board: docs/operations.md.",
    ),
    "nats.overcommitted": Check(
        _M,
        "Within their limits the streams may fill the disk, and JetStream stops where it is full.",
        "signalbox topology apply --storage-gib with at most 70 % of the volume and of jetstream.max_file_store.",
    ),
    "nats.other_rights": Check(
        _H,
        "The user may do other things than its role was declared to.",
        "signalbox nats-users, and reload the server.",
    ),
    # ---- queues
    "queues.one_account": Check(
        _M,
        "Full queues take the disk that jobs need, and who breaks into a program of queues may read jobs' streams too.",
        "Include the output of `signalbox nats-users`; SIGNALBOX_QUEUES_NATS_USER and _PASSWORD_FILE for gateways and "
        "outbound: docs/operations.md, An account for queues.",
    ),
    "queues.unbounded": Check(
        _M,
        "Queues may fill the disk, and JetStream stops where it is full.",
        "signalbox nats-users --queues-gib > users.conf",
    ),
    "queues.streams_differ": Check(
        _M,
        "The queue refuses what it should take, or keeps less or more than its document says.",
        "Look at the queue's page and the log of outbound, which makes its streams: docs/operations.md, Queues.",
    ),
    "queues.nearly_full": Check(
        _H,
        "Full, queues refuse every put, and a full REAR holds dead items up in their queues.",
        "Consume, redrive or purge what lies there, or give queues more disk: signalbox nats-users --queues-gib.",
    ),
    # ---- Tyk
    "tyk.secret": Check(
        _H,
        "With it one adds and removes APIs and keys through Tyk's control API.",
        "TYK_GW_SECRET: 32 random characters.",
    ),
    "tyk.control_public": Check(
        _H, "The control API answers on the consumers' port.", "control_api_port: 9696, never published."
    ),
    "tyk.keys_unhashed": Check(
        _M, "Session tokens stand readable in Redis.", "hash_keys: true, hash_key_function: sha256"
    ),
    "tyk.bundles": Check(_H, "Tyk fetches code from a URL and runs it.", "enable_bundle_downloader: false"),
    "tyk.profiler": Check(_M, "The profiler shows memory to any client.", "enable_http_profiler: false"),
    "tyk.debug": Check(_M, "Tyk's debug log holds headers, Authorization included.", "log_level: info"),
    "tyk.recording": Check(
        _H, "Analytics store whole requests, keys and inputs included.", "enable_detailed_recording: false"
    ),
    "tyk.no_body_limit": Check(
        _M, "A body of any size is read into memory.", "http_server_options.max_request_body_size: 75497472"
    ),
    "tyk.version_shown": Check(_L, "The answer names the software.", "hide_generator_header: true"),
    "tyk.redis_open": Check(
        _M,
        "Any client that reaches Redis raises a quota or forges a session.",
        "TYK_GW_STORAGE_PASSWORD, and Redis with requirepass.",
    ),
    "tyk.plugin_plain": Check(
        _M,
        "API keys cross this hop readable; Tyk can neither encrypt nor authenticate it.",
        "A unix socket, loopback, or a network of Tyk and plugin alone, accepted with that reason.",
    ),
    "tyk.keyless": Check(_H, "Requests are let through without a key.", "use_keyless: false"),
    "tyk.no_auth_hook": Check(
        _H, "Tyk does not ask the plugin who calls.", "enable_coprocess_auth: true, custom_middleware.auth_check"
    ),
    "tyk.cached_auth": Check(
        _H, "Tyk remembers who was let in: a revoked key goes on working.", "Remove id_extractor."
    ),
    "tyk.cors": Check(_M, "Any web page may call with the visitor's key.", "CORS.enable: false, or named origins."),
    "tyk.upstream": Check(
        _M, "Requests the plugin does not answer go on to another server.", 'target_url: "http://127.0.0.1:9/"'
    ),
    "tyk.upstream_plain": Check(
        _M,
        "API keys go on to the upstream readable.",
        "Loopback, or a network of Tyk and plugin alone, accepted with that reason.",
    ),
    "file.unreadable": Check(
        _M, "What cannot be read was not examined.", "Give the right path, or run as a user who may read it."
    ),
}


def accept(found: Iterable[Finding], reasons: Mapping[str, str]) -> list[Finding]:
    """The findings, those with a reason given (by id) marked as accepted."""
    return [one._replace(accepted=reasons.get(one.id, "")) for one in found]
