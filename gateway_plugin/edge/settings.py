"""Settings of the edge as a program of its own: ``SIGNALBOX_EDGE_*``."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from gateway_plugin.edge.definition import SOURCE
from gateway_plugin.upstream.body import BODIES_BYTES
from signalbox.front.bounds import HttpBounds


class EdgeSettings(HttpBounds, frozen=True, kw_only=True):
    """What ``python -m gateway_plugin.edge`` needs; it does not speak NATS itself."""

    listen: Annotated[str, Meta(description="Address the edge listens on, `host:port`; port 0 takes a free one.")] = (
        "127.0.0.1:8080"
    )
    plugin: Annotated[str, Meta(description="The plugin: `unix:///path`, `host:port` or `dns:///name:port`.")] = (
        "127.0.0.1:9111"
    )
    files: Annotated[
        str, Meta(description="Folder with `tyk.conf`, `apps/`, `templates/`; empty = the one shipped.")
    ] = ""
    secret: Annotated[
        str,
        Meta(description="Shared with the plugin, where the API definition does not hold it.", extra={"secret": True}),
    ] = ""
    max_bodies_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Most bytes of request bodies in flight; more get 503. Of one account as many as are still "
            "free; more get 429.",
        ),
    ] = BODIES_BYTES
    grace_s: Annotated[float, Meta(ge=0, description="How long requests in flight may go on after SIGTERM.")] = 30.0

    @property
    def folder(self) -> Path:
        """Where the gateway's files are."""
        return Path(self.files) if self.files else SOURCE
