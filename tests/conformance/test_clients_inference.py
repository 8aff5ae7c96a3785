"""The Open Inference Protocol through published clients, unmodified: ``tritonclient`` and ``kserve``, HTTP and gRPC."""

from typing import Any

import numpy as np
import pytest

from tests.conformance import clientruns
from tests.conformance.clientruns import Report, client
from tests.conformance.clients import samples
from tests.conformance.clients.steps import tensor
from tests.conformance.servedmodels import Served

pytestmark = pytest.mark.proof
KINDS = clientruns.KINDS
triton_http = client("triton_http", "triton", "tritonclient.http")
triton_grpc = client("triton_grpc", "triton", "tritonclient.grpc")
kserve = client("kserve")
HALVED = {"y": tensor(np.array([2.5, 3.0, 4.5], np.float32))}
HALVED_LARGE = {"y": tensor(samples.large() / 2 + 2)}
LOUD = {
    "loud": tensor(samples.strings([b"QUIET", b"\xff\0", b""])),
    "size": tensor(np.array([5, 2, 0], np.int32)),
}
SUM = {"sum": tensor(np.array([3, 7], np.int32))}
OVER_HTTP = {"NOT_FOUND": 404, "INVALID_ARGUMENT": 400, "UNAUTHENTICATED": 401, "DEADLINE_EXCEEDED": 504}
REFUSALS = [
    ("an_unknown_model", "NOT_FOUND", "nobody"),
    ("another_dtype", "INVALID_ARGUMENT", '"x"'),
    ("a_wrong_key", "UNAUTHENTICATED", ""),
]
TRITONS = [
    *REFUSALS,
    ("an_unknown_output", "INVALID_ARGUMENT", '"z"'),
    ("no_key", "UNAUTHENTICATED", ""),
    ("infer_past_its_timeout", "DEADLINE_EXCEEDED", ""),
]


def mirrored(*but: str) -> dict[str, Any]:
    """What comes back where each dtype's array is sent to the mirror of that dtype."""
    return {name: tensor(value) for name, value in samples.mirrored().items() if not name.startswith(but)}


@pytest.fixture(params=["triton_http", "triton_grpc"])
def triton(request: pytest.FixtureRequest, served: Served) -> Report:
    """Triton's client over HTTP, and over gRPC."""
    found: Report = request.getfixturevalue(request.param)
    return found


def test_the_documentation_s_programs_print_what_it_says(
    triton_http: Report, triton_grpc: Report, kserve: Report
) -> None:
    found = {"tritonclient.http": triton_http, "tritonclient.grpc": triton_grpc, "kserve": kserve}
    assert {name: report["documented"] for name, report in found.items()} == {
        name: clientruns.printed(name) for name in found
    }


def test_triton_s_clients_see_a_server_that_lives_and_is_ready(triton_http: Report, triton_grpc: Report) -> None:
    assert triton_http["health_without_a_key"] == [True, True, True]
    assert triton_grpc["health"] == [True, True]


def test_triton_s_clients_see_which_models_are_ready(triton: Report) -> None:
    assert triton["model_ready"] == [True, True, False]


def test_triton_s_clients_see_the_server_s_extensions(triton: Report) -> None:
    found = triton["server_metadata"]
    assert found["name"] == "signalbox"
    assert found["version"]
    assert {"binary_tensor_data", "model_configuration", "statistics"} <= set(found["extensions"])


def test_triton_s_clients_see_a_model_s_tensors(triton: Report) -> None:
    found = triton["model_metadata"]
    assert [found["name"], found["versions"], found["platform"]] == ["pair", ["1"], "tensorflow_savedmodel"]
    assert _tensors(found["inputs"]) == {"a": ["INT32", [-1, 2]], "s": ["BYTES", [-1]]}
    outputs = {"sum": ["INT32", [-1]], "s": ["BYTES", [-1]], "raw_bytes": ["BYTES", [-1]]}
    assert _tensors(found["outputs"]) == outputs


def _tensors(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Datatype and sizes of tensors by name; protobuf writes the sizes as strings."""
    return {one["name"]: [one["datatype"], [int(size) for size in one["shape"]]] for one in found}


def test_triton_s_clients_see_a_model_s_configuration(triton: Report) -> None:
    found = triton["model_config"]
    assert [found["name"], found["platform"]] == ["pair", "tensorflow_savedmodel"]
    assert {one["name"]: one["data_type"] for one in found["input"]} == {"a": "TYPE_INT32", "s": "TYPE_STRING"}
    assert {one["name"] for one in found["output"]} == {"sum", "s", "raw_bytes"}


def test_triton_s_clients_see_the_index_of_the_repository(triton: Report) -> None:
    found = {(one["name"], one["version"]): one["state"] for one in triton["repository_index"]}
    assert [found["half", "1"], found["half", "2"], found["pair", "1"]] == ["READY"] * 3


@pytest.mark.parametrize("step", ["infer_binary", "infer_json", "infer_with_priority_and_timeout"])
def test_triton_s_http_client_infers_with_bytes_and_with_json(triton_http: Report, step: str) -> None:
    assert triton_http[step] == HALVED


def test_triton_s_http_client_mixes_bytes_and_json(triton_http: Report) -> None:
    assert triton_http["infer_binary_and_json"] == {"raw_bytes": tensor(samples.strings([b"a", b"\xff\0"])), **SUM}


@pytest.mark.parametrize("step", ["infer", "infer_with_priority_and_timeout"])
def test_triton_s_grpc_client_infers(triton_grpc: Report, step: str) -> None:
    assert triton_grpc[step] == HALVED


def test_triton_s_grpc_client_gets_the_outputs_that_it_names_alone(triton_grpc: Report) -> None:
    assert triton_grpc["infer_some_outputs"] == {"raw_bytes": tensor(samples.strings([b"a", b"\xff\0"])), **SUM}


def test_triton_s_clients_get_the_version_and_the_id_that_they_sent(triton: Report) -> None:
    assert triton["infer_of_a_version"] == ["half", "1", "mine"]


def test_triton_s_clients_keep_every_bit_of_every_dtype(triton_http: Report, triton_grpc: Report) -> None:
    assert triton_http["infer_every_dtype_binary"] == mirrored("complex")
    assert triton_grpc["infer_every_dtype"] == mirrored("complex")
    assert triton_http["infer_every_dtype_json"] == mirrored("complex", "float16", "bfloat16")


def test_triton_s_clients_send_bytes_that_are_no_text(triton: Report) -> None:
    assert triton["infer_strings_that_are_no_text"] == LOUD


def test_triton_s_clients_carry_six_megabytes_both_ways(triton: Report) -> None:
    assert triton["infer_six_megabytes"] == HALVED_LARGE


def test_triton_s_clients_compress_requests_and_answers(triton_http: Report, triton_grpc: Report) -> None:
    assert triton_http["infer_compressed"] == {"gzip": HALVED_LARGE["y"], "deflate": HALVED_LARGE["y"]}
    assert triton_grpc["infer_compressed"] == HALVED_LARGE


def test_triton_s_clients_have_many_calls_at_once(triton: Report) -> None:
    assert triton["infer_later"] == [[value / 2 + 2] for value in range(8)]


def test_triton_s_clients_see_statistics_of_their_calls(triton: Report, triton_http: Report) -> None:
    found = {one["version"]: one for one in triton["statistics"]["model_stats"]}
    assert {one["name"] for one in found.values()} == {"half"}
    assert int(found["2"]["inference_stats"]["success"]["count"]) >= 8
    assert int(found["2"]["inference_count"]) >= 8
    assert {"half", "pair", "shout"} <= set(triton_http["statistics_of_all"])


@pytest.mark.parametrize(("step", "code", "text"), TRITONS)
def test_triton_s_http_client_is_told_why_it_is_refused(triton_http: Report, step: str, code: str, text: str) -> None:
    refused = triton_http[step]
    assert refused["code"] == str(OVER_HTTP[code]), refused
    assert refused["text"]
    assert text in refused["text"]


@pytest.mark.parametrize(
    ("step", "code", "text"), [*TRITONS, ("infer_past_the_client_s_own_timeout", "DEADLINE_EXCEEDED", "")]
)
def test_triton_s_grpc_client_is_told_why_it_is_refused(triton_grpc: Report, step: str, code: str, text: str) -> None:
    refused = triton_grpc[step]
    assert refused["code"] == code, refused
    assert refused["text"]
    assert text in refused["text"]


def test_triton_s_clients_are_told_what_is_not_offered(triton_http: Report, triton_grpc: Report) -> None:
    for found, code in ((triton_http, "501"), (triton_grpc, "UNIMPLEMENTED")):
        assert found["shared_memory"]["code"] == code, found["shared_memory"]
        assert "not offered" in found["shared_memory"]["text"]
    assert triton_grpc["stream"]["code"] == "StatusCode.UNIMPLEMENTED"
    assert "ModelInfer" in triton_grpc["stream"]["text"]


def test_triton_s_clients_are_told_which_scope_loads_and_unloads(triton_http: Report, triton_grpc: Report) -> None:
    for found, code in ((triton_http, "403"), (triton_grpc, "PERMISSION_DENIED")):
        for refused in found["load_and_unload"]:
            assert refused["code"] == code, refused
            assert "models:manage" in refused["text"]


def test_kserve_s_clients_see_a_server_and_a_model_that_are_ready(kserve: Report) -> None:
    assert kserve["rest_health_without_a_key"] == [True, True, True]
    assert kserve["grpc_health"] == [True, True]
    assert kserve["rest_model_ready"] == kserve["grpc_model_ready"] == [True, False]


@pytest.mark.parametrize("step", ["rest_infer_json", "rest_infer_binary", "grpc_infer_raw", "grpc_infer_typed"])
def test_kserve_s_clients_infer_in_every_form_that_they_have(kserve: Report, step: str) -> None:
    assert kserve[step] == HALVED


def test_kserve_s_rest_client_infers_from_a_dict_and_names_outputs(kserve: Report) -> None:
    assert kserve["rest_infer_a_dict"] == tensor(np.array([[2.5], [3.0]], np.float32))
    assert kserve["rest_infer_some_outputs"] == {"s": tensor(samples.strings([b"A", b"B"])), **SUM}


def test_kserve_s_clients_keep_every_bit_of_every_dtype(kserve: Report) -> None:
    for step in ("rest_infer_every_dtype_binary", "grpc_infer_every_dtype_raw"):
        assert kserve[step] == mirrored("complex", "bfloat16")
    for step in ("rest_infer_every_dtype_json", "grpc_infer_every_dtype_typed"):
        assert kserve[step] == mirrored("complex", "bfloat16", "float16")


@pytest.mark.parametrize("step", ["rest_infer_six_megabytes", "grpc_infer_six_megabytes"])
def test_kserve_s_clients_carry_six_megabytes_both_ways(kserve: Report, step: str) -> None:
    assert kserve[step] == HALVED_LARGE


@pytest.mark.parametrize(("step", "code", "text"), [*REFUSALS, ("no_key", "UNAUTHENTICATED", "")])
def test_kserve_s_rest_client_is_told_why_it_is_refused(kserve: Report, step: str, code: str, text: str) -> None:
    refused = kserve[f"rest_{step}"]
    assert refused["code"] == OVER_HTTP[code], refused
    assert not refused["text"].startswith(","), "the client found no text of ours"
    assert text in refused["text"]


@pytest.mark.parametrize(
    ("step", "code", "text"),
    [
        ("an_unknown_model", "NOT_FOUND", "nobody"),
        ("a_wrong_key", "UNAUTHENTICATED", ""),
        ("a_deadline", "DEADLINE_EXCEEDED", ""),
    ],
)
def test_kserve_s_grpc_client_is_told_why_it_is_refused(kserve: Report, step: str, code: str, text: str) -> None:
    refused = kserve[f"grpc_{step}"]
    assert refused["code"] == code, refused
    assert refused["text"]
    assert text in refused["text"]
