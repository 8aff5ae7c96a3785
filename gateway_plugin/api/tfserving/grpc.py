"""The methods of TensorFlow Serving's gRPC services, by path."""

from gateway_plugin.api.calls import Method
from gateway_plugin.api.tfserving import modelservice
from gateway_plugin.api.tfserving.inferservice import InferService
from gateway_plugin.api.tfserving.modelservice import ModelService
from gateway_plugin.api.tfserving.monitoring import RequestCounts
from gateway_plugin.api.tfserving.predictservice import PredictService
from gateway_plugin.api.tfserving.views import ModelStatus
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.service.console import Console
from gateway_plugin.service.jobs import Jobs
from gateway_plugin.tables.catalog import Catalog


def methods(
    catalog: Catalog,
    status: ModelStatus,
    jobs: Jobs,
    console: Console,
    counts: RequestCounts,
    offloading: Offloading,
) -> dict[str, Method]:
    """Every method; each needs a key. counts: those that the account's metrics page shows."""
    models = ModelService(catalog, status, console)
    predict = PredictService(catalog, jobs, counts, offloading)
    infer = InferService(catalog, jobs, counts, offloading)
    return {
        "/tensorflow.serving.PredictionService/Predict": predict.predict,
        "/tensorflow.serving.PredictionService/Classify": infer.classify,
        "/tensorflow.serving.PredictionService/Regress": infer.regress,
        "/tensorflow.serving.PredictionService/MultiInference": infer.multi_inference,
        "/tensorflow.serving.PredictionService/GetModelMetadata": models.get_metadata,
        "/tensorflow.serving.ModelService/GetModelStatus": models.get_status,
        "/tensorflow.serving.ModelService/HandleReloadConfigRequest": models.reload_config,
        "/tensorflow.serving.SessionService/SessionRun": modelservice.run_session,
    }
