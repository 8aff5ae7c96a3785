"""TensorFlow Serving's API through published clients, unmodified: ``tensorflow-serving-api`` and ``requests``."""

import numpy as np
import pytest

from tests.conformance import clientruns
from tests.conformance.clientruns import Report, client
from tests.conformance.clients import samples
from tests.conformance.clients.steps import tensor

pytestmark = pytest.mark.proof
KINDS = clientruns.KINDS
tfserving = client("tfserving", heading="tensorflow-serving-api", has_tensorflow=True)
requests = client("requests")
HALVED = tensor(np.array([2.5, 3.0, 4.5], np.float32))
HALVED_LARGE = tensor(samples.large() / 2 + 2)
SCORES = [[["low", 12.0], ["high", 20.0]], [["low", 4.0], ["high", 4.0]]]


def test_the_documentation_s_programs_print_what_it_says(tfserving: Report, requests: Report) -> None:
    assert tfserving["documented"] == clientruns.printed("tensorflow-serving-api")
    assert requests["documented"] == clientruns.printed("requests")


def test_grpc_predict_answers_with_the_model_that_ran(tfserving: Report) -> None:
    assert tfserving["predict"] == {"model": ["half", 2, "serving_default"], "outputs": {"y": HALVED}}
    chosen = [["half", 1, "serving_default"], ["half", 2, "serving_default"]]
    assert tfserving["predict_of_a_label_and_of_a_version"] == chosen


def test_grpc_predict_takes_a_constant_as_one_value(tfserving: Report) -> None:
    assert tfserving["predict_constants"] == [tensor(np.full([5], 6.0, np.float32))] * 2


def test_grpc_predict_keeps_every_bit_of_every_dtype(tfserving: Report) -> None:
    given = samples.mirrored()
    assert tfserving["predict_every_dtype"] == {f"y_{name}": tensor(value) for name, value in given.items()}
    assert len(given) == 16


def test_grpc_predict_takes_bytes_that_are_no_text(tfserving: Report) -> None:
    loud, size = samples.strings([b"QUIET", b"\xff\0", b""]), np.array([5, 2, 0], np.int32)
    assert tfserving["predict_strings"] == {"loud": tensor(loud), "size": tensor(size)}


@pytest.mark.parametrize("step", ["predict_six_megabytes", "predict_six_megabytes_compressed"])
def test_grpc_predict_carries_six_megabytes_both_ways(tfserving: Report, step: str) -> None:
    assert tfserving[step] == {"y": HALVED_LARGE}


def test_grpc_predict_answers_the_outputs_of_the_filter_alone(tfserving: Report) -> None:
    total, raw = np.array([3, 7], np.int32), samples.strings([b"a", b"b"])
    assert tfserving["predict_some_outputs"] == {"sum": tensor(total), "raw_bytes": tensor(raw)}
    refused = tfserving["predict_an_unknown_output"]
    assert refused["code"] == "INVALID_ARGUMENT"
    assert refused["text"].startswith("output tensor alias not found in signature: z")


def test_grpc_calls_at_once_each_get_their_own_answer(tfserving: Report) -> None:
    assert tfserving["predict_later"] == [[value / 2 + 2] for value in range(8)]


def test_grpc_classify_regress_and_both_at_once(tfserving: Report) -> None:
    assert tfserving["classify"] == SCORES
    assert tfserving["regress"] == [142.0, 103.0]
    assert tfserving["classify_and_regress"] == [SCORES[0], 12.0]


def test_grpc_metadata_and_status_are_those_of_the_model(tfserving: Report) -> None:
    inputs = {"a": ["int32", [-1, 2]], "s": ["string", [-1]]}
    assert tfserving["metadata"] == {"version": 1, "inputs": inputs, "outputs": ["raw_bytes", "s", "sum"]}
    assert tfserving["status"] == [[2, "AVAILABLE", 0], [1, "AVAILABLE", 0]]


def test_grpc_health_needs_no_key(tfserving: Report) -> None:
    assert tfserving["health_without_a_key"] == "SERVING"


@pytest.mark.parametrize(
    ("step", "code", "text"),
    [
        ("an_unknown_model", "NOT_FOUND", "Servable not found for request: Latest(nobody)"),
        ("an_unknown_version", "NOT_FOUND", "Servable not found for request: Specific(half, 99)"),
        ("an_unknown_signature", "FAILED_PRECONDITION", 'Serving signature key "sing" not found.'),
        ("another_dtype", "INVALID_ARGUMENT", ""),
        ("a_missing_input", "INVALID_ARGUMENT", ""),
        ("a_shape_that_the_model_refuses", "INVALID_ARGUMENT", ""),
        ("a_wrong_key", "UNAUTHENTICATED", ""),
        ("no_key", "UNAUTHENTICATED", ""),
        ("a_deadline", "DEADLINE_EXCEEDED", ""),
        ("reload_the_configuration", "PERMISSION_DENIED", "This API key lacks the scope models:manage."),
    ],
)
def test_grpc_refusals_have_tensorflow_serving_s_code_and_text(
    tfserving: Report, step: str, code: str, text: str
) -> None:
    refused = tfserving[step]
    assert refused["code"] == code, refused
    assert refused["text"].startswith(text)
    assert refused["text"]


def test_rest_predict_answers_rows_and_columns(requests: Report) -> None:
    assert requests["predict_rows"] == {"predictions": [2.5, 3.0, 4.5]}
    columns = {"sum": [3, 7], "s": ["A", "B"], "raw_bytes": [{"b64": "YQ=="}, {"b64": "Yg=="}]}
    assert requests["predict_columns"] == {"outputs": columns}
    assert requests["predict_of_a_label_and_of_a_version"] == [{"predictions": [2.5]}] * 2
    assert requests["predict_with_the_client_s_own_json"] == [200, "application/json", {"predictions": [2.5]}]
    assert requests["predict_on_one_connection"] == [[value / 2 + 2] for value in range(8)]


def test_rest_predict_keeps_every_bit_of_every_dtype(requests: Report) -> None:
    assert requests["predict_every_dtype"] == {name: tensor(value) for name, value in samples.mirrored().items()}


@pytest.mark.parametrize("step", ["predict_six_megabytes", "predict_compressed"])
def test_rest_predict_carries_what_is_six_megabytes_in_binary(requests: Report, step: str) -> None:
    assert requests[step] == HALVED_LARGE


def test_rest_classify_and_regress(requests: Report) -> None:
    assert requests["classify"] == {"results": SCORES}
    assert requests["regress"] == {"results": [142.0, 103.0]}


def test_rest_metadata_and_status_are_those_of_the_model(requests: Report) -> None:
    assert requests["metadata"] == ["a", "s"]
    good = {"error_code": "OK", "error_message": ""}
    states = [{"version": version, "state": "AVAILABLE", "status": good} for version in ("2", "1")]
    assert requests["status"] == {"model_version_status": states}


@pytest.mark.parametrize(
    ("step", "code", "text"),
    [
        ("an_unknown_model", 404, "Servable not found for request: Latest(nobody)"),
        ("another_type", 400, "Failed to process element: 1 of 'instances' list."),
        ("a_wrong_key", 401, ""),
        ("no_key", 401, ""),
    ],
)
def test_rest_refusals_have_tensorflow_serving_s_code_and_text(
    requests: Report, step: str, code: int, text: str
) -> None:
    refused = requests[step]
    assert refused["code"] == code
    assert refused["text"].startswith(text)
    assert refused["text"]
