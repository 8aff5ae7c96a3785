"""The outbound program's settings: ``SIGNALBOX_OUTBOUND_<FIELD>`` beside what every program shares."""

from typing import Annotated, Final

from msgspec import Meta

from gateway_plugin.codec.settings import CodecSettings

PREFIX: Final = "SIGNALBOX_OUTBOUND_"
_MIB: Final = 1024 * 1024


class OutboundSettings(CodecSettings, frozen=True, kw_only=True):
    """What goes out, how far, and to whom."""

    id: Annotated[str, Meta(description="Name of this copy in `duties`; empty = made of host and process.")] = ""
    duty_s: Annotated[
        int, Meta(ge=1, le=60, description="Seconds without a sign of life after which another copy takes a task over.")
    ] = 10
    inline_bytes: Annotated[
        int,
        Meta(ge=0, le=512 * 1024, description="Outputs up to here are in the message in RESULTS; others by reference."),
    ] = 64 * 1024
    account_bytes: Annotated[
        int, Meta(ge=_MIB, description="What the ends of one account take in RESULTS; older ones go.")
    ] = 64 * _MIB
    allowed_networks: Annotated[
        tuple[str, ...],
        Meta(
            description="CIDR blocks that are not public and may be called all the same, on any port and without TLS: "
            "receivers of webhooks in networks of one's own, comma-separated."
        ),
    ] = ()
    batch_window: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="Jobs of a batch of a file that are open at once; never more than a quarter of its model's "
            "`max_queue`.",
        ),
    ] = 64
    batches_at_once: Annotated[
        int, Meta(ge=1, le=64, description="Batches of files that are done at once, one of each account.")
    ] = 8
    held_s: Annotated[
        float,
        Meta(
            ge=60,
            le=7 * 86_400,
            description="Records of subscribed accounts' jobs wait so long for their ends to be written to RESULTS. "
            "The same for workers.",
        ),
    ] = 86_400.0
