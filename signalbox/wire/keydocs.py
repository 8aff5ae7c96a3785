"""Documents of API keys: what the holder of one may do, and what its account may hold."""

from signalbox.wire.messages import Doc


class Share(Doc, frozen=True, kw_only=True):
    """What one account may hold at once, all its keys together; 0 = what the gateway's settings give every account, and
    of queue_bytes what its queues take.

    stored_bytes: inputs of its jobs that have not ended. waiting: its calls that wait for a result.
    idempotency_keys: those that are remembered. result_bytes: where room for results is short, those of the least time
    that results are kept, in ``STATE``, and as many in ``PAYLOADS``. queue_bytes: items of its queues, source and sink.
    """

    stored_bytes: int = 0
    waiting: int = 0
    idempotency_keys: int = 0
    result_bytes: int = 0
    queue_bytes: int = 0


class ApiKey(Doc, frozen=True, kw_only=True):
    """KV ``keys``: one API key. Key: its public id. The secret is not here, only its keyed hash.

    scopes: of ``jobs:submit, jobs:read, jobs:cancel, jobs:urgent`` (priority ``hi``), and of
    ``queues:put, queues:get, queues:watch, queues:manage``. models: allow list, empty = all.
    rate per ``per_s`` seconds and quota per ``quota_window_s`` seconds; 0 = unlimited.
    account_id: of its account, which owns its jobs. account_models: what the account may use, empty = all; a call needs
    both lists. share: the account's, the same in each of its keys.
    networks: CIDR blocks it may be used from, empty = everywhere.
    is_disabled: its account is, for now; unlike an end, what the newest document says counts.
    webhook_hosts: of URLs that the account's jobs may name for their ends, in small letters; empty = none.
    queues: the account's queues that it is for, empty = all of them.
    """

    id: str
    account_id: str
    name: str = ""
    hmac: str
    pepper: str = "1"
    scopes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    rate: int = 0
    per_s: int = 1
    quota: int = 0
    quota_window_s: int = 86_400
    expires_at: float | None = None
    revoked_at: float | None = None
    updated_at: float = 0.0
    account_models: tuple[str, ...] = ()
    share: Share = Share()
    networks: tuple[str, ...] = ()
    is_disabled: bool = False
    webhook_hosts: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
