"""TensorFlow Serving's Prometheus page, and what browsers of other origins are told."""

import pytest

from gateway_plugin.api.tfserving import monitoring
from gateway_plugin.api.tfserving.httprules import encoding_of, preflight
from gateway_plugin.api.tfserving.monitoring import BUCKETS_US, RequestCounts
from gateway_plugin.codec import dtypes
from signalbox.program.errors import InvalidJson, InvalidRequest, NotServing
from signalbox.wire.tensors import DTYPES

COUNT = ":tensorflow:serving:request_count"
LATENCY = ":tensorflow:serving:request_latency"


def page(counts: RequestCounts, account: str = "a") -> dict[str, str]:
    """Each line's value."""
    given = counts.page(account)
    assert (given.status, given.headers) == (200, {"Content-Type": "text/plain"})
    assert given.body.endswith(b"\n")
    return dict(line.rsplit(" ", 1) for line in given.body.decode().splitlines() if not line.startswith("#"))


def test_requests_are_counted_by_status_and_latencies_in_tensorflow_serving_s_buckets() -> None:
    counts = RequestCounts()
    for seconds in (5e-6, 15e-6, 3_600.0):
        counts.answered("a", "half", "predict", seconds)
    counts.answered("a", "half", "", 0.0)
    counts.refused("a", "half", InvalidJson("no"))
    counts.refused("a", "half", NotServing("no"))
    lines = page(counts)
    assert lines[f'{COUNT}{{model_name="half",status="OK"}}'] == "4"
    assert lines[f'{COUNT}{{model_name="half",status="INVALID_ARGUMENT"}}'] == "1"
    assert lines[f'{COUNT}{{model_name="half",status="UNAVAILABLE"}}'] == "1"
    labels = 'model_name="half",API="predict",entrypoint="REST"'
    buckets = [lines[f'{LATENCY}_bucket{{{labels},le="{bound:g}"}}'] for bound in BUCKETS_US]
    assert buckets == ["1"] + ["2"] * 32
    assert lines[f'{LATENCY}_bucket{{{labels},le="+Inf"}}'] == lines[f"{LATENCY}_count{{{labels}}}"] == "3"
    assert float(lines[f"{LATENCY}_sum{{{labels}}}"]) == pytest.approx(3_600_000_020)


def test_an_account_sees_its_own_requests_only() -> None:
    counts = RequestCounts()
    counts.answered("a", "half", "predict", 0.1)
    assert page(counts, "b") == {}


def test_what_was_not_used_for_longest_is_forgotten_and_names_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "_MOST_KEPT", 2)
    counts = RequestCounts()
    for model in ("one", 'tw"o', "one", "three\\"):
        counts.answered("a", model, "predict", 0.1)
    models = {line.partition(",")[0] for line in page(counts) if line.startswith(COUNT)}
    assert models == {f'{COUNT}{{model_name="one"', f'{COUNT}{{model_name="three\\\\"'}


@pytest.mark.parametrize("origin", ["http://a", "https://a.b:1"])
def test_a_browser_s_question_is_answered(origin: str) -> None:
    assert preflight({"Origin": origin}).status == 200


@pytest.mark.parametrize("headers", [{}, {"Origin": ""}, {"Origin": "null"}, {"Origin": "file://a"}])
def test_a_question_without_an_origin_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=r"\AOrigin header is missing in CORS preflight\Z"):
        preflight(headers)


@pytest.mark.parametrize(
    ("header", "encoding"), [("gzip", "gzip"), ("x-gzip", "gzip"), ("br, gzip", "gzip"), ("br", ""), ("identity", "")]
)
def test_only_gzip_is_a_coding_to_tensorflow_serving(header: str, encoding: str) -> None:
    assert encoding_of(header) == encoding


def test_every_dtype_that_travels_has_tensorflow_s_names() -> None:
    assert {dtypes.enumerator(dtype) for dtype in DTYPES} >= {
        "DT_FLOAT",
        "DT_DOUBLE",
        "DT_HALF",
        "DT_STRING",
        "DT_UINT16",
    }
    assert "DT_INVALID" not in {dtypes.enumerator(dtype) for dtype in DTYPES}
    assert (dtypes.word("float64"), dtypes.enumerator("unsupported:0")) == ("double", "DT_INVALID")
