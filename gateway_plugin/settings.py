"""The gateway plugin's settings: ``SIGNALBOX_GATEWAY_<FIELD>`` beside what every program shares."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from msgspec import Meta

from gateway_plugin.codec.settings import CodecSettings

PREFIX: Final = "SIGNALBOX_GATEWAY_"
UNIX: Final = "unix://"
_MIB: Final = 1024 * 1024
_ADDRESS: Final = re.compile(r"[^/]+:\d{1,5}")


class GatewaySettings(CodecSettings, frozen=True, kw_only=True):
    """Where the plugin listens, what it accepts and how long it waits."""

    listen: Annotated[
        str,
        Meta(
            description="Where the gateway calls the plugin: `unix:///path`, `host:port`, or empty "
            "when only the edge is wanted."
        ),
    ] = "127.0.0.1:9111"
    transport: Annotated[
        Literal["native", "grpc"],
        Meta(
            description="What serves `listen`: `native` (our own HTTP/2) or `grpc` (grpc.aio, which costs three times "
            "the processor time)."
        ),
    ] = "native"
    edge_listen: Annotated[
        str,
        Meta(
            description="`host:port` where callers are served over HTTP without a gateway (the edge); empty = nowhere."
        ),
    ] = ""
    grpc_listen: Annotated[
        str,
        Meta(
            description="`host:port` where TensorFlow Serving's and the Open Inference Protocol's gRPC is served: to "
            "the gateway behind the auth hook, or to callers where `listen` is empty; empty = nowhere."
        ),
    ] = ""
    upstream_listen: Annotated[
        str,
        Meta(
            description="`host:port` where the gateway finds what is served over HTTP behind the auth hook alone "
            "(`/v2`); empty = nowhere. The edge needs none."
        ),
    ] = ""
    allow_remote: Annotated[
        bool,
        Meta(
            description="Let `listen`, `edge_listen`, `grpc_listen` and `upstream_listen` be non-loopback addresses. "
            "Nothing there is encrypted, and the hooks' protocol has no authentication: only for a network of its own."
        ),
    ] = False
    secret: Annotated[
        str,
        Meta(
            description="Shared with the API definition's `config_data.secret`; a call without it is "
            "refused. Empty = not checked, which only a unix socket may do.",
            extra={"secret": True},
        ),
    ] = ""
    api_ids: Annotated[tuple[str, ...], Meta(description="API definitions whose calls are taken, comma-separated.")] = (
        "signalbox",
        "signalbox-files",
        "signalbox-inference",
        "signalbox-inference-grpc",
        "signalbox-jobs",
        "signalbox-predict",
        "signalbox-queues",
        "signalbox-tensorflow-grpc",
    )
    org_ids: Annotated[tuple[str, ...], Meta(description="Organisations whose calls are taken, comma-separated.")] = (
        "signalbox",
    )
    previous_key_pepper: Annotated[
        str,
        Meta(
            description="While the pepper is rotated, the one before; keys made under it are good until they end.",
            extra={"secret": True},
        ),
    ] = ""
    trusted_proxies: Annotated[
        int,
        Meta(
            ge=0,
            le=16,
            description="Proxies of ours before the front that append to X-Forwarded-For; 0 = clients "
            "reach the front themselves. Keys limited to networks are judged by it.",
        ),
    ] = 0
    max_key_failures: Annotated[
        int,
        Meta(
            ge=1,
            description="Wrong keys a minute from one address (IPv6: /64), from all whose address is not known "
            "together, or with one key id, before wrong keys get 429 there. Right ones are let in all the same.",
        ),
    ] = 60
    cors: Annotated[
        bool,
        Meta(
            description="Answer browsers of other origins on TensorFlow Serving's paths, as its "
            "`--rest_api_enable_cors_support` does. A page of any origin may then use a key that it holds."
        ),
    ] = False
    socket_mode: Annotated[str, Meta(pattern="^0?[0-7]{3}$", description="Octal file mode of the unix socket.")] = (
        "0660"
    )
    pid_file: Annotated[
        str,
        Meta(
            description="File that holds the process's id and is locked while it runs, for `python -m gateway_plugin "
            "--health --end-stuck`; empty = none."
        ),
    ] = ""
    max_bodies_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Most bytes of request bodies in flight; more get 503. Of one account as many as are still "
            "free; more get 429.",
        ),
    ] = 512 * _MIB
    max_message_bytes: Annotated[
        int, Meta(ge=65_536, description="Largest message of a hook call, from or to the gateway; it holds the body.")
    ] = 128 * _MIB
    max_upstream_bytes: Annotated[
        int,
        Meta(ge=65_536, description="Largest gRPC message or binary body of a caller; JSON has `max_body_bytes`."),
    ] = 64 * _MIB
    max_concurrent: Annotated[int, Meta(ge=1, description="Most hook calls in flight, waiting ones included.")] = 2048
    max_waiting: Annotated[int, Meta(ge=1, description="Most callers kept waiting for a result; more get 503.")] = 1536
    account_waiting: Annotated[
        int,
        Meta(
            ge=1,
            description="Most of them of one account whose own share does not say otherwise; more get 429. It also has "
            "no more than are still free.",
        ),
    ] = 1536
    max_streams: Annotated[
        int,
        Meta(
            ge=1,
            description="Most streams of jobs' events that are open; more get 503. Of one account as many as are still "
            "free; more get 429.",
        ),
    ] = 2048
    max_watches: Annotated[
        int,
        Meta(
            ge=1,
            description="Most websockets, each a watch of a queue, that are open; more get 503. Of one account as many "
            "as are still free; more get 429.",
        ),
    ] = 2048
    fair_room: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Places of a model's queue, in each class above `lo`, that accounts share (a quick model has "
            "half a second's work of them, none more than `max_queue`): one may have as many jobs waiting as are left "
            "free, what is above goes to `lo`. 0 = as asked for.",
        ),
    ] = 32
    max_stored_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes that stored inputs of an account's jobs that have not ended may take (inputs above the "
            "inline limit), unless its own share says otherwise; more get 429. 0 = a quarter of all the room there is.",
        ),
    ] = 0
    max_delayed: Annotated[
        int,
        Meta(
            ge=1,
            le=50_000,
            description="Jobs of one account whose inputs may be stored while it submits another one that is to run "
            "later (`not_before`); more get 429.",
        ),
    ] = 10_000
    max_results_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Where room for results is short, bytes that an account's results of the last "
            "`SIGNALBOX_RESULTS_KEPT_S` may take in `STATE`, and as many in `PAYLOADS`, unless its own share says "
            "otherwise; new jobs above that get 429. 0 = no more than is still free.",
        ),
    ] = 0
    max_idempotency_keys: Annotated[
        int,
        Meta(
            ge=1,
            description="Idempotency keys of one account that are remembered, each for a day, unless its own share "
            "says otherwise; new ones above that get 429.",
        ),
    ] = 50_000
    max_wait_s: Annotated[float, Meta(gt=0, description="Longest wait for a result, whatever the model allows.")] = (
        110.0
    )
    recheck_s: Annotated[
        float, Meta(gt=0, description="A job waited for this long is looked up, in case its reply was lost.")
    ] = 5.0
    stale_keys_s: Annotated[
        float, Meta(gt=0, description="Without proof for this long that the key table is current, every key gets 503.")
    ] = 14.0
    drain_s: Annotated[float, Meta(ge=0, description="How long calls in flight may take after SIGTERM.")] = 10.0
    max_connection_age_s: Annotated[
        float,
        Meta(
            ge=0,
            description="Gateways are asked to redial after this long, so that a new plugin gets its "
            "share and a replaced one is left without a lost call; 0 = never.",
        ),
    ] = 10.0

    @property
    def has_gateway(self) -> bool:
        """Whether a gateway counts the calls of a key before they reach the upstream's listeners."""
        return bool(self.listen)

    @property
    def largest_body_bytes(self) -> int:
        """Largest body of a caller, which a hook call brings whole."""
        return max(self.max_body_bytes, self.max_upstream_bytes)

    @property
    def longest_call_s(self) -> float:
        """Longest time of a hook call: NATS asked, its body decoded, its result waited for and rendered."""
        return self.max_wait_s + 2 * self.decode_timeout_s + self.request_timeout_s

    def problems(self) -> Iterator[str]:
        """Rules that span fields."""
        yield from super().problems()
        if not self.listen and not self.edge_listen and not self.grpc_listen:
            yield f"{PREFIX}LISTEN, ..EDGE_LISTEN and ..GRPC_LISTEN are all empty: no caller could reach the plugin"
        yield from self._misplaced()
        if self.listen and not self.listen.startswith(UNIX) and not self.secret:
            yield (
                f"{PREFIX}SECRET must be set for {PREFIX}LISTEN={self.listen}: any process that connects to a port is "
                f"taken for the gateway; set it, or listen on {UNIX}/path"
            )
        if self.max_waiting >= self.max_concurrent:
            yield f"{PREFIX}MAX_WAITING must be below {PREFIX}MAX_CONCURRENT"
        for name in ("max_body_bytes", "max_upstream_bytes"):
            if self.max_bodies_bytes < getattr(self, name):
                yield f"{PREFIX}MAX_BODIES_BYTES must be at least {PREFIX}{name.upper()}"
        for name in ("max_body_bytes", "max_upstream_bytes", "max_answer_bytes"):
            if self.max_message_bytes < getattr(self, name) + _MIB:
                yield f"{PREFIX}MAX_MESSAGE_BYTES must exceed {PREFIX}{name.upper()} by at least 1 MiB"
        if not self.key_pepper:
            yield "SIGNALBOX_KEY_PEPPER must be set: API keys are checked with it"

    def _misplaced(self) -> Iterator[str]:
        """Addresses that are none, or that others reach."""
        for name in ("listen", "edge_listen", "grpc_listen", "upstream_listen"):
            address: str = getattr(self, name)
            variable = f"{PREFIX}{name.upper()}={address}"
            if address and name != "listen" and not _ADDRESS.fullmatch(address):
                yield f"{variable} is no address to listen on; write host:port"
            elif address and not self.allow_remote and not is_local(address):
                kinds = "a loopback address or unix socket" if name == "listen" else "a loopback address"
                yield (
                    f"{variable} is not {kinds}; set {PREFIX}ALLOW_REMOTE=on if that network is private: nothing on it "
                    "is encrypted"
                )


def is_local(listen: str) -> bool:
    """Whether an address is a unix socket or loopback."""
    if listen.startswith(UNIX):
        return True
    host = listen.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
