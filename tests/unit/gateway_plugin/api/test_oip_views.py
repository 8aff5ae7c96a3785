"""The Open Inference Protocol's paths, options, views and statistics, without a plugin."""

from typing import Any

import msgspec
import pytest

from gateway_plugin.admission.submission import SubmitOptions
from gateway_plugin.api.oip import options, paths, statistics, views
from gateway_plugin.api.oip.paths import Operation, Route, is_keyless, route_of
from gateway_plugin.api.oip.statistics import Statistics
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.proto import inference_pb2 as messages
from signalbox.jobs.change import LONGEST_DEADLINE_S
from signalbox.program.errors import InvalidInput, InvalidRequest, MethodNotAllowed, NotFound, Unimplemented
from signalbox.wire.messages import Record, State
from signalbox.wire.modeldocs import Batching, Model, Signature, TensorSpec, Version
from signalbox.wire.names import MODEL_NAME, RESERVED_MODEL_NAMES

X = TensorSpec(dtype="float32", shape=(-1, 3))
SIGNATURES = {
    "serving_default": Signature(inputs={"x": X}, outputs={"y": TensorSpec(dtype="string", shape=(-1,)), "z": X}),
    "half": Signature(inputs={"x": X}, outputs={"h": TensorSpec(dtype="float16", shape=(-1,)), "z": X}),
    "alone": Signature(inputs={"x": TensorSpec(dtype="complex64", shape=None)}, outputs={"z": X}),
}


def ready(default: str = "serving_default", **fields: Any) -> PreparedVersion:
    signatures = {**SIGNATURES, "serving_default": SIGNATURES[default]}
    joined = tuple(signatures)
    versions = tuple(Version(version=number, path="/m", signatures=signatures, joined=joined) for number in (12, 3))
    return PreparedVersion(Model(name="m", versions=versions, **fields), versions[0])


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("GET", "/v2", Route(Operation.SERVER)),
        ("GET", "/v2/", Route(Operation.SERVER)),
        ("GET", "/v2/health/live", Route(Operation.LIVE)),
        ("GET", "/v2/health/ready", Route(Operation.READY)),
        ("HEAD", "/v2/health/ready", Route(Operation.READY)),
        ("HEAD", "/v2/models/m", Route(Operation.MODEL, "m")),
        ("GET", "/v2/models", Route(Operation.MODELS)),
        ("GET", "/v2/models/m", Route(Operation.MODEL, "m")),
        ("GET", "/v2/models/a%20b/versions/3", Route(Operation.MODEL, "a b", "3")),
        ("GET", "/v2/models/m/ready", Route(Operation.MODEL_READY, "m")),
        ("GET", "/v2/models/m/versions/stable/ready", Route(Operation.MODEL_READY, "m", "stable")),
        ("GET", "/v2/models/m/config", Route(Operation.CONFIG, "m")),
        ("GET", "/v2/models/m/versions/3/stats", Route(Operation.STATISTICS, "m", "3")),
        ("GET", "/v2/models/stats", Route(Operation.STATISTICS)),
        ("POST", "/v2/models/m/infer", Route(Operation.INFER, "m")),
        ("POST", "/v2/models/m/versions/3/infer", Route(Operation.INFER, "m", "3")),
        ("POST", "/v2/repository/index", Route(Operation.INDEX)),
    ],
)
def test_paths_are_routed(method: str, path: str, route: Route) -> None:
    assert route_of(method, path) == route


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v2/models/m/infer", "POST"),
        ("HEAD", "/v2/models/m/infer", "POST"),
        ("POST", "/v2/models/m", "GET"),
        ("GET", "/v2/repository/index", "POST"),
    ],
)
def test_another_method_is_told_the_right_one(method: str, path: str, allow: str) -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        route_of(method, path)
    assert caught.value.facts["allow"] == allow


@pytest.mark.parametrize(
    "path",
    ["/v2/model/m", "/v2/models/m/infer/", "/v2/models//infer", "/v2/MODELS/m", "/v2x", "/v2/models/m/versions/"],
)
def test_other_paths_are_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        route_of("GET", path)


@pytest.mark.parametrize(
    "path",
    [
        "/v2/systemsharedmemory/status",
        "/v2/cudasharedmemory/region/r/register",
        "/v2/trace/setting",
        "/v2/models/m/trace/setting",
        "/v2/logging",
        "/v2/models/m/generate",
        "/v2/models/m/versions/1/generate_stream",
    ],
)
def test_what_is_not_offered_says_what_to_do_instead(path: str) -> None:
    with pytest.raises(Unimplemented) as caught:
        route_of("POST", path)
    assert "is not offered. " in caught.value.public_message


def test_health_alone_needs_no_key() -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/v2/models/m/versions/stable/ready"):
        assert is_keyless("GET", path)
        assert is_keyless("HEAD", path)
        assert not is_keyless("POST", path)
    for path in (
        "/v2",
        "/v2/no",
        "/v2/no/ready",
        "/v2/models/ready",
        "/v2/models/m/ready/infer",
        "/v2/models/a/b/ready",
    ):
        assert not is_keyless("GET", path)


def test_every_name_beside_models_in_a_path_is_reserved() -> None:
    words = {part for path in paths._FIXED for part in path.split("/")[2:3] + path.split("/")[3:4]}
    names = {word for word in words if word and MODEL_NAME.match(word)} - {"live", "ready", "index"}
    assert names == {"health", "models", "stats", "repository"}
    assert names <= RESERVED_MODEL_NAMES


# ---------------------------------------------------------------------------------------------- options


def test_a_bare_request_wants_every_output_as_json() -> None:
    found = options.read(ready(), {})
    assert (found.id, found.outputs, found.binary, found.timeout_s) == (None, ("y", "z"), frozenset(), None)
    assert found.submit == SubmitOptions()


def test_outputs_are_those_asked_for_in_that_order_and_each_in_its_way() -> None:
    asked = {
        "id": "7",
        "parameters": {"binary_data_output": True},
        "outputs": [{"name": "z"}, {"name": "y", "parameters": {"binary_data": False}}],
    }
    found = options.read(ready(), asked)
    assert (found.id, found.outputs, found.binary) == ("7", ("z", "y"), frozenset({"z"}))
    assert options.read(ready(), {"outputs": []}, is_binary=True).binary == {"y", "z"}


@pytest.mark.parametrize(
    ("level", "priority"), [(0, "mid"), (1, "hi"), (2, "mid"), (3, "lo"), (9, "lo"), (2**63, "lo")]
)
def test_priorities_are_triton_s_levels(level: int, priority: str) -> None:
    assert options.read(ready(), {"parameters": {"priority": level}}).submit.priority == priority


def test_a_timeout_is_in_microseconds_and_zero_is_none() -> None:
    assert options.read(ready(), {"parameters": {"timeout": 1_500_000}}).timeout_s == 1.5
    assert options.read(ready(), {"parameters": {"timeout": 0}}).timeout_s is None
    assert options.read(ready(), {"parameters": {"timeout": 2**63}}).timeout_s == LONGEST_DEADLINE_S


def test_a_signature_may_be_named() -> None:
    asked = {"parameters": {"signature_name": "half", "binary_data_output": True}}
    assert options.read(ready(), asked).outputs == ("h", "z")


def test_an_output_without_json_must_go_as_bytes() -> None:
    half = {"signature_name": "half"}
    with pytest.raises(InvalidInput, match='Output "h": FP16 has no JSON'):
        options.require_json(options.read(ready(), {"parameters": half}))
    options.require_json(options.read(ready(), {"parameters": half}, is_binary=True))
    options.require_json(options.read(ready(), {"parameters": half, "outputs": [{"name": "z"}]}))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"id": 7}, '"id" must be a string'),
        ({"id": "x" * 1_025}, '"id" must be a string'),
        ({"outputs": {}}, '"outputs" must be a list'),
        ({"outputs": [{"name": "no"}]}, 'There is no output "no"; the outputs are "y", "z".'),
        ({"outputs": [{"name": "z"}, {"name": "z"}]}, "is asked for twice"),
        ({"outputs": [1]}, '"outputs"[0] must be an object'),
        ({"outputs": [{"name": "z", "parameters": {"binary_data": 1}}]}, 'parameter "binary_data" of output "z"'),
        ({"outputs": [{"name": "z", "parameters": {"classification": 2}}]}, "classification"),
        ({"outputs": [{"name": "z", "parameters": {"shared_memory_region": "r"}}]}, "shared memory"),
        ({"parameters": {"priority": -1}}, 'parameter "priority" must be a whole number'),
        ({"parameters": {"priority": True}}, 'parameter "priority" must be a whole number'),
        ({"parameters": {"timeout": 1.5}}, 'parameter "timeout" must be a whole number'),
        ({"parameters": {"binary_data_output": "yes"}}, 'parameter "binary_data_output" of the request'),
        ({"parameters": {"sequence_id": 4}}, "sequence_id is not taken"),
        ({"parameters": {"signature_name": 4}}, '"signature_name" must be a string'),
        ({"parameters": {"signature_name": "no"}}, "not found in signature def"),
        ({"parameters": 1}, '"parameters" of the request must be an object'),
    ],
)
def test_options_that_mean_nothing_are_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        options.read(ready(), asked)
    assert words in caught.value.public_message


# ---------------------------------------------------------------------------------------------- views


def test_metadata_has_the_default_signature_and_every_version() -> None:
    doc = views.metadata(ready())
    assert doc == {
        "name": "m",
        "versions": ["3", "12"],
        "platform": "tensorflow_savedmodel",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [
            {"name": "y", "datatype": "BYTES", "shape": [-1]},
            {"name": "z", "datatype": "FP32", "shape": [-1, 3]},
        ],
    }
    assert messages.ModelMetadataResponse(**doc).inputs[0].shape == [-1, 3]


def test_a_configuration_leaves_the_batch_out_of_the_dimensions() -> None:
    doc = views.config(ready(batching=Batching(max_size=16, max_delay_ms=2.5, rows_independent=True)))
    assert doc["max_batch_size"] == 16
    assert doc["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [3]}]
    assert doc["output"] == [
        {"name": "y", "data_type": "TYPE_STRING", "dims": []},
        {"name": "z", "data_type": "TYPE_FP32", "dims": [3]},
    ]
    assert doc["dynamic_batching"]["max_queue_delay_microseconds"] == 2_500
    sent = messages.ModelConfigResponse(config=doc).config
    assert (sent.output[0].data_type, sent.dynamic_batching.priority_levels) == (messages.TYPE_STRING, 3)
    assert list(sent.version_policy.specific.versions) == [3, 12]


def test_a_model_whose_requests_run_alone_has_no_batch() -> None:
    as_by_default = views.config(ready(batching=Batching(max_size=16)))
    assert (as_by_default["max_batch_size"], as_by_default["input"][0]["dims"]) == (0, [-1, 3])
    assert "dynamic_batching" not in as_by_default
    doc = views.config(ready("alone", batching=Batching(rows_independent=True)))
    assert doc["max_batch_size"] == 0
    assert "dynamic_batching" not in doc
    assert doc["input"] == [{"name": "x", "data_type": "TYPE_INVALID", "dims": [-1]}]
    assert doc["output"] == [{"name": "z", "data_type": "TYPE_FP32", "dims": [-1, 3]}]
    messages.ModelConfigResponse(config=doc)


def test_the_server_says_what_it_offers() -> None:
    assert "binary_tensor_data" in messages.ServerMetadataResponse(**views.SERVER).extensions


# ---------------------------------------------------------------------------------------------- statistics


def record(**fields: Any) -> Record:
    known = {"id": "1", "model": "m", "version": 3, "signature": "s", "account_id": "a", "state": State.SUCCEEDED}
    return Record(**{**known, "created_at": 0.0, "deadline_at": 1.0, **fields})


def test_durations_are_of_the_jobs_phases_and_batches_count_once() -> None:
    counts = Statistics(wall=lambda: 1.5)
    parts = {"queue": 1.0, "batch": 2.0, "run": 4.0, "commit": 1.0}
    for _ in range(4):
        counts.succeeded("a", record(phases={"done": 8.0}, parts=parts, batch=4), 2, 0.01)
    counts.failed("a", "m", 3, 0.5)
    (one,) = counts.of("a", [("m", 3)])["model_stats"]
    stats = one["inference_stats"]
    assert (one["inference_count"], one["execution_count"], one["last_inference"]) == (8, 1, 1_500)
    assert stats["success"] == {"count": 4, "ns": 40_000_000}
    assert stats["fail"] == {"count": 1, "ns": 500_000_000}
    assert stats["queue"] == {"count": 4, "ns": 12_000_000}
    assert stats["compute_infer"] == {"count": 4, "ns": 16_000_000}
    assert stats["compute_output"] == {"count": 4, "ns": 4_000_000}
    assert messages.ModelStatisticsResponse(model_stats=[one]).model_stats[0].inference_stats.queue.ns == 12_000_000


def test_an_account_sees_its_own_inferences_only_and_zeros_where_it_has_none() -> None:
    counts = Statistics()
    counts.failed("a", "m", 3, 0.1)
    (one,) = counts.of("b", [("m", 3)])["model_stats"]
    assert one["inference_stats"]["fail"] == {"count": 0, "ns": 0}
    assert one["execution_count"] == 0


def test_what_was_not_used_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_MOST_KEPT", 2)
    counts = Statistics()
    for name in ("one", "two", "one", "three"):
        counts.failed("a", name, 1, 0.1)
    found = counts.of("a", [(name, 1) for name in ("one", "two", "three")])["model_stats"]
    assert [each["inference_stats"]["fail"]["count"] for each in found] == [2, 0, 1]
    assert msgspec.json.encode(found)


def test_what_only_a_job_has_is_read_where_an_inference_is_one() -> None:
    asked = {"parameters": {"deadline_s": 60, "tags": ["a"], "not_before": "2026-11-29T05:00:00Z", "priority": 3}}
    found = options.read(ready(), asked, is_job=True).submit
    assert found == SubmitOptions("lo", 60.0, ("a",), 1_795_928_400.0)
    assert options.read(ready(), asked).submit == SubmitOptions("lo")
    with pytest.raises(InvalidRequest, match="tags"):
        options.read(ready(), {"parameters": {"tags": "a"}}, is_job=True)
