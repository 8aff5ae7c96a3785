"""The outbound program's settings: ``SIGNALBOX_OUTBOUND_<FIELD>`` beside what every program shares."""

import re
from collections.abc import Iterator
from typing import Annotated, Final
from urllib.parse import unquote

from msgspec import Meta

from gateway_plugin.codec.settings import CodecSettings

PREFIX: Final = "SIGNALBOX_OUTBOUND_"
_MIB: Final = 1024 * 1024
_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
"""Of a header, in small letters (RFC 9110)."""


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
    hook_connect_s: Annotated[
        float, Meta(gt=0, le=60, description="A webhook's receiver takes the connection within so long.")
    ] = 3.0
    hook_total_s: Annotated[
        float, Meta(gt=0, le=120, description="An attempt at a delivery ends within so long, its answer included.")
    ] = 10.0
    hook_at_once: Annotated[int, Meta(ge=1, le=64, description="Attempts of one webhook at once.")] = 8
    hooks_at_once: Annotated[
        int, Meta(ge=0, le=1024, description="Attempts of all webhooks at once, beside one that each always may make.")
    ] = 64
    hook_retries_s: Annotated[
        tuple[float, ...],
        Meta(
            description="Seconds after each attempt that failed, a tenth more or less; failed once more, a delivery is "
            "given up."
        ),
    ] = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400, 86_400, 86_400)
    hook_fails_s: Annotated[
        float, Meta(gt=0, description="A webhook all of whose deliveries have failed for so long is disabled.")
    ] = 5 * 86_400.0
    hook_ca_file: Annotated[
        str, Meta(description="PEM file of authorities that sign receivers' certificates, beside the system's.")
    ] = ""
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
    service_window: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="Items of a queue that one of its services has at once; never more than two runs of each "
            "device that serves the model, and a quarter of the model's `max_queue`.",
        ),
    ] = 256
    traces_url: Annotated[
        str,
        Meta(
            description="OTLP/HTTP endpoint that traces of ended jobs are sent to (`http://host:4318/v1/traces`); "
            "empty = none. Needs the extra `traces`; certificates and times as the SDK's `OTEL_EXPORTER_OTLP_*` say."
        ),
    ] = ""
    traces_headers: Annotated[
        str,
        Meta(
            description="Headers that it is sent, as a collector's token: `name=value` with commas between, values as "
            "in an address (`authorization=Bearer%20TOKEN`). Empty = those of `OTEL_EXPORTER_OTLP_HEADERS`.",
            extra={"secret": True},
        ),
    ] = ""
    traces_slow_s: Annotated[
        float,
        Meta(
            ge=0,
            description="A job that took longer from acceptance to end has its trace sent though its caller did not "
            "sample it, as a failed one has; 0 = no time does.",
        ),
    ] = 0.0

    def problems(self) -> Iterator[str]:
        """Violations of rules that no type expresses, one sentence each."""
        yield from super().problems()
        if headers_of(self.traces_headers) is None:
            yield f"{PREFIX}TRACES_HEADERS wants name=value, with commas between them and no other commas"


def headers_of(text: str) -> dict[str, str] | None:
    """Headers by name, as OpenTelemetry writes several in one text; None where it is none.

    Source: OpenTelemetry's specification of the OTLP exporter, "Specifying headers via environment variables".
    """
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    found = {unquote(name).strip().lower(): unquote(value).strip() for name, _, value in parts}
    is_well = all(_NAME.fullmatch(name) and value and value.isprintable() for name, value in found.items())
    return found if is_well else None
