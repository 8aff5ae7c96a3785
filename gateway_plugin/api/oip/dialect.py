"""The Open Inference Protocol, ready to be served: one counting and one way to a prediction for both transports."""

from collections.abc import Callable
from typing import NamedTuple

from gateway_plugin.api.oip.grpc import OipGrpc
from gateway_plugin.api.oip.inference import Inference
from gateway_plugin.api.oip.rest import OipRest
from gateway_plugin.api.oip.statistics import Statistics
from gateway_plugin.api.oip.targets import Targets
from gateway_plugin.api.oip.views import ModelViews
from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.service.jobs import Jobs
from gateway_plugin.service.loading import Loading
from gateway_plugin.settings import GatewaySettings
from gateway_plugin.tables.catalog import Catalog
from gateway_plugin.tables.liveworkers import LiveWorkers


class OpenInference(NamedTuple):
    """The protocol over its two transports."""

    rest: OipRest
    grpc: OipGrpc


def open_inference(
    settings: GatewaySettings,
    catalog: Catalog,
    workers: LiveWorkers,
    codec: BodyCodec,
    jobs: Jobs,
    loading: Loading,
    offloading: Offloading,
    is_healthy: Callable[[], bool],
) -> OpenInference:
    """The dialect. is_healthy: whether requests can be accepted now."""
    targets, views = Targets(catalog), ModelViews(workers, is_healthy)
    inference = Inference(targets, jobs, Statistics())
    return OpenInference(
        OipRest(
            targets,
            views,
            inference,
            jobs,
            loading,
            codec,
            offloading,
            is_healthy=is_healthy,
            max_binary_bytes=settings.max_upstream_bytes,
        ),
        OipGrpc(
            targets, views, inference, loading, offloading, is_healthy=is_healthy, max_elements=settings.max_elements
        ),
    )
