"""Settings of a program's HTTP listener, and the descriptors that its connections need."""

import resource
from typing import Annotated, Final

from msgspec import Meta

from signalbox.program.errors import Misconfigured
from signalbox.program.settings import Wire

MOST_HEAD_FIELDS: Final = 100
"""Header fields of an HTTP request; more is 431. Browsers and proxies send some twenty, and each costs its parsing."""
SPARE_DESCRIPTORS: Final = 512
"""Descriptors for files, NATS, gRPC, child processes, and connections that are being turned away."""


class HttpBounds(Wire, frozen=True, kw_only=True):
    """Bounds on what a client may use of a listener before it is known."""

    http_head_bytes: Annotated[
        int, Meta(ge=4096, le=1_048_576, description="Longest head of an HTTP request; more is 431.")
    ] = 65_536
    http_head_s: Annotated[
        float,
        Meta(
            gt=0,
            description="Longest time from a connection, or the first byte of its next request, to the end of the "
            "head; then 408, or no answer to who sent nothing.",
        ),
    ] = 10.0
    http_body_s: Annotated[
        float,
        Meta(
            gt=0,
            description="A body that brings neither its end nor 16 KiB in this time is 408; a client that takes "
            "nothing of its answer for so long is cut off. Runs only while the program reads or writes.",
        ),
    ] = 20.0
    http_idle_s: Annotated[
        float,
        Meta(
            gt=0,
            description="How long a connection is kept between two requests: longer than a gateway before the program "
            "keeps it (Tyk: 90 s), which loses the request that crosses its close.",
        ),
    ] = 100.0
    http_connections: Annotated[
        int,
        Meta(
            ge=16,
            description="Most HTTP connections at once; more get 503. The limit of descriptors (`ulimit -n`), which "
            "is raised as far as it goes, must leave 512 beside it.",
        ),
    ] = 4096
    http_connections_per_address: Annotated[
        int,
        Meta(
            ge=0,
            description="Of them, most from one address (IPv6: one /64 network); 0 = any number, as where "
            "a proxy stands before the program. Not counted where settings say that one does (`TRUSTED_PROXIES`, "
            "`TRUST_PROXY`).",
        ),
    ] = 1024


def raise_descriptors(bounds: HttpBounds, variable: str) -> None:
    """Raise the limit of open files to its hard limit. Raises :class:`Misconfigured` if that is too low.

    variable: the name under which the number of connections is set.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = bounds.http_connections + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Misconfigured(
            f"{variable}={bounds.http_connections} needs {needed} open files and the limit is {hard};"
            f" raise it (ulimit -n, LimitNOFILE), or set {variable} to {max(0, hard - SPARE_DESCRIPTORS)} or less."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
