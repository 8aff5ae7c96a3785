"""TensorFlow Serving's gRPC API as ``tensorflow-serving-api`` speaks it."""

import functools
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from tests.conformance.clients import samples
from tests.conformance.clients.steps import WRONG_KEY, Target, take, tensor

TIMEOUT_S = 60.0


@functools.cache
def _channel(target: Target) -> Any:
    """A channel that takes large answers: gRPC's own clients stop at 4 MiB."""
    return grpc.insecure_channel(target.grpc, options=[("grpc.max_receive_message_length", -1)])


def _predictions(target: Target) -> Any:
    return prediction_service_pb2_grpc.PredictionServiceStub(_channel(target))


def _request(model: str, **inputs: Any) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def _predict(target: Target, request: Any, **more: Any) -> dict[str, Any]:
    """The outputs, and which version of which model they are of."""
    answer = _predictions(target).Predict(request, **{"timeout": TIMEOUT_S, "metadata": target.metadata, **more})
    spec = answer.model_spec
    outputs = {name: tensor(tf.make_ndarray(value)) for name, value in answer.outputs.items()}
    return {"model": [spec.name, spec.version.value, spec.signature_name], "outputs": outputs}


def _refused(call: Callable[[], Any]) -> dict[str, Any]:
    """Status and text of a call that must fail."""
    try:
        return {"answered": str(call())}
    except grpc.RpcError as error:
        return {"code": error.code().name, "text": error.details()}


def _examples(given: Any, *values: float) -> None:
    """Examples of the feature ``x``."""
    for value in values:
        example = tf.train.Example()
        example.features.feature["x"].float_list.value.append(value)
        given.examples.append(example)


def predict(target: Target) -> Any:
    return _predict(target, _request("half", x=np.array([1.0, 2.0, 5.0], np.float32)))


def predict_of_a_label_and_of_a_version(target: Target) -> Any:
    labelled, numbered = (_request("half", x=np.array([3.0, 4.0], np.float32)) for _ in range(2))
    labelled.model_spec.version_label = "stable"
    numbered.model_spec.version.value = 2
    return [_predict(target, request)["model"] for request in (labelled, numbered)]


def predict_constants(target: Target) -> Any:
    """A constant array as TensorFlow makes it, one value and a shape, and one value that stands for all of them."""
    filled, shrunk = (_request("half") for _ in range(2))
    filled.inputs["x"].CopyFrom(tf.make_tensor_proto(np.full([5], 8.0, np.float32)))
    shrunk.inputs["x"].CopyFrom(tf.make_tensor_proto(8.0, dtype=tf.float32, shape=[5]))
    assert len(shrunk.inputs["x"].float_val) == 1
    return [_predict(target, request)["outputs"]["y"] for request in (filled, shrunk)]


def predict_every_dtype(target: Target) -> Any:
    given = samples.mirrored()
    return _predict(target, _request("mirror", **{f"x_{name}": value for name, value in given.items()}))["outputs"]


def predict_strings(target: Target) -> Any:
    return _predict(target, _request("shout", text=samples.strings([b"quiet", b"\xff\0", b""])))["outputs"]


def predict_six_megabytes(target: Target) -> Any:
    return _predict(target, _request("half", x=samples.large()))["outputs"]


def predict_six_megabytes_compressed(target: Target) -> Any:
    return _predict(target, _request("half", x=samples.large()), compression=grpc.Compression.Gzip)["outputs"]


def predict_some_outputs(target: Target) -> Any:
    request = _request("pair", a=np.array([[1, 2], [3, 4]], np.int32), s=samples.strings([b"a", b"b"]))
    request.output_filter.extend(["sum", "raw_bytes"])
    return _predict(target, request)["outputs"]


def predict_an_unknown_output(target: Target) -> Any:
    request = _request("half", x=np.array([1.0], np.float32))
    request.output_filter.append("z")
    return _refused(lambda: _predict(target, request))


def predict_later(target: Target) -> Any:
    """Several calls at once, as futures."""
    stub = _predictions(target)
    futures = [
        stub.Predict.future(_request("half", x=np.array([value], np.float32)), TIMEOUT_S, metadata=target.metadata)
        for value in range(8)
    ]
    return [tf.make_ndarray(future.result().outputs["y"]).tolist() for future in futures]


def classify(target: Target) -> Any:
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "scorer"
    _examples(request.input.example_list, 20.0, 4.0)
    answer = _predictions(target).Classify(request, TIMEOUT_S, metadata=target.metadata)
    return [[[one.label, one.score] for one in row.classes] for row in answer.result.classifications]


def regress(target: Target) -> Any:
    """The feature ``k`` is in the context, and so in every example."""
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "scorer"
    request.model_spec.signature_name = "regress"
    given = request.input.example_list_with_context
    _examples(given, 80.0, 2.0)
    given.context.features.feature["k"].int64_list.value.append(100)
    answer = _predictions(target).Regress(request, TIMEOUT_S, metadata=target.metadata)
    return [one.value for one in answer.result.regressions]


def classify_and_regress(target: Target) -> Any:
    request = inference_pb2.MultiInferenceRequest()
    for method, signature in (("classify", "serving_default"), ("regress", "regress")):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name = "scorer"
        task.model_spec.signature_name = signature
    _examples(request.input.example_list, 20.0)
    classified, regressed = _predictions(target).MultiInference(request, TIMEOUT_S, metadata=target.metadata).results
    classes = classified.classification_result.classifications[0].classes
    return [[[one.label, one.score] for one in classes], regressed.regression_result.regressions[0].value]


def metadata(target: Target) -> Any:
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "pair"
    request.metadata_field.append("signature_def")
    answer = _predictions(target).GetModelMetadata(request, TIMEOUT_S, metadata=target.metadata)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(found)
    signature = found.signature_def["serving_default"]
    inputs = {
        name: [tf.dtypes.as_dtype(info.dtype).name, [dim.size for dim in info.tensor_shape.dim]]
        for name, info in signature.inputs.items()
    }
    return {"version": answer.model_spec.version.value, "inputs": inputs, "outputs": sorted(signature.outputs)}


def status(target: Target) -> Any:
    stub = model_service_pb2_grpc.ModelServiceStub(_channel(target))
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "half"
    answer = stub.GetModelStatus(request, TIMEOUT_S, metadata=target.metadata)
    states = get_model_status_pb2.ModelVersionStatus.State
    return [[one.version, states.Name(one.state), one.status.error_code] for one in answer.model_version_status]


def health_without_a_key(target: Target) -> Any:
    answer = health_pb2_grpc.HealthStub(_channel(target)).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def an_unknown_model(target: Target) -> Any:
    return _refused(lambda: _predict(target, _request("nobody", x=np.array([1.0], np.float32))))


def an_unknown_version(target: Target) -> Any:
    request = _request("half", x=np.array([1.0], np.float32))
    request.model_spec.version.value = 99
    return _refused(lambda: _predict(target, request))


def an_unknown_signature(target: Target) -> Any:
    request = _request("half", x=np.array([1.0], np.float32))
    request.model_spec.signature_name = "sing"
    return _refused(lambda: _predict(target, request))


def another_dtype(target: Target) -> Any:
    return _refused(lambda: _predict(target, _request("half", x=np.array([1, 2]))))


def a_missing_input(target: Target) -> Any:
    return _refused(lambda: _predict(target, _request("pair", a=np.array([[1, 2]], np.int32))))


def a_shape_that_the_model_refuses(target: Target) -> Any:
    return _refused(lambda: _predict(target, _request("weigh", x=np.ones([2, 7], np.float32))))


def a_wrong_key(target: Target) -> Any:
    wrong = [("authorization", f"Bearer {WRONG_KEY}")]
    return _refused(lambda: _predict(target, _request("half", x=np.array([1.0], np.float32)), metadata=wrong))


def no_key(target: Target) -> Any:
    return _refused(lambda: _predict(target, _request("half", x=np.array([1.0], np.float32)), metadata=[]))


def a_deadline(target: Target) -> Any:
    return _refused(lambda: _predict(target, _request("slow", seconds=np.array([1.5], np.float32)), timeout=0.5))


def reload_the_configuration(target: Target) -> Any:
    stub = model_service_pb2_grpc.ModelServiceStub(_channel(target))
    request = model_management_pb2.ReloadConfigRequest()
    request.config.model_config_list.config.add(name="half", base_path="/models/half", model_platform="tensorflow")
    return _refused(lambda: stub.HandleReloadConfigRequest(request, TIMEOUT_S, metadata=target.metadata))


if __name__ == "__main__":
    take(__name__)
