"""TensorFlow Serving's REST API behind every front: golden answers, with real models in a real worker."""

import gzip
import http.client
import json
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conformance import servinggolden
from tests.conformance.conftest import KINDS as FRONTS
from tests.conformance.servedmodels import Served
from tests.conformance.servinggolden import Golden, tokens

KINDS = FRONTS
PREDICT = "/v1/models/half:predict"
ONE = b'{"instances": [1.0]}'
ZIPPED = gzip.compress(ONE, mtime=0)
"""Its bytes are in the names of tests, which must be the same in every process that collects them."""


@pytest.mark.parametrize("golden", servinggolden.ALL, ids=[golden.name for golden in servinggolden.ALL])
def test_the_answer_is_tensorflow_serving_s(served: Served, golden: Golden) -> None:
    got = served.client.request(golden.method, golden.path, content=golden.body)
    assert got.status_code == golden.status, got.text
    assert got.headers["content-type"] == "application/json"
    if golden.status < 400:
        assert tokens(got.text) == tokens(golden.answer)
        return
    error = got.json()["error"]
    assert list(got.json()) == ["error"]
    assert error.startswith(golden.answer), error
    assert error, "an error without words"


def test_there_is_a_golden_answer_for_each_part_of_the_api() -> None:
    assert len(servinggolden.ALL) >= 150
    assert len({golden.name + golden.body[60:].__repr__() for golden in servinggolden.ALL}) == len(servinggolden.ALL)


@pytest.mark.parametrize(
    "content_type", [None, "application/x-www-form-urlencoded", "text/plain", "a/b; c=d", "\u00e9"]
)
def test_the_content_type_is_not_looked_at(served: Served, content_type: str | None) -> None:
    headers = {} if content_type is None else {b"Content-Type": content_type.encode()}
    got = served.client.post(PREDICT, content=ONE, headers=headers)
    assert (got.status_code, got.json()) == (200, {"predictions": [2.5]})


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", ZIPPED),
        ("GZIP", ZIPPED),
        ("x-gzip", ZIPPED),
        ("identity", ONE),
        ("br", ONE),
    ],
)
def test_a_gzip_body_is_inflated_and_other_codings_are_not_looked_at(
    served: Served, encoding: str, body: bytes
) -> None:
    got = served.client.post(PREDICT, content=body, headers={"Content-Encoding": encoding})
    assert (got.status_code, got.json()) == (200, {"predictions": [2.5]})


@pytest.mark.parametrize("body", [b"no gzip", ZIPPED[:-9], b""])
def test_what_is_no_gzip_is_an_empty_document(served: Served, body: bytes) -> None:
    got = served.client.post(PREDICT, content=body, headers={"Content-Encoding": "gzip"})
    assert got.status_code == 400
    assert got.json()["error"].startswith("JSON Parse error: The document is empty")


def test_a_chunked_body_and_one_that_waits_for_leave_are_read(served: Served) -> None:
    got = served.client.post(PREDICT, content=iter([ONE[:9], ONE[9:]]))
    assert (got.status_code, got.json()) == (200, {"predictions": [2.5]})
    where = urlsplit(str(served.client.base_url))
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 80, timeout=60)
    connection.putrequest("POST", PREDICT)
    for name, value in (
        ("Authorization", served.client.headers["authorization"]),
        ("Content-Length", str(len(ONE))),
        ("Expect", "100-continue"),
    ):
        connection.putheader(name, value)
    connection.endheaders(ONE)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"predictions": [2.5]})
    connection.close()


def test_a_body_of_several_hundred_kilobytes_gets_the_same_answers_as_a_small_one(served: Served) -> None:
    values = [number / 4 for number in range(60_000)]
    got = served.client.post(PREDICT, json={"instances": values})
    assert got.json() == {"predictions": [value / 2 + 2 for value in values]}
    wrong = served.client.post(PREDICT, json={"instances": [*values, "a"]})
    assert wrong.status_code == 400
    assert wrong.json()["error"].startswith("Failed to process element: 60000 of 'instances' list. Error: INVALID_ARG")
    examples = [{"x": value, "name": "x" * 20} for value in values[:5_000]]
    results = served.client.post("/v1/models/scorer:regress", json={"signature_name": "regress", "examples": examples})
    assert results.json() == {"results": [value / 2 + 2 for value in values[:5_000]]}


def test_metadata_shows_every_signature_as_tensorflow_serving_does(served: Served) -> None:
    got = served.client.get("/v1/models/scorer/metadata")
    assert got.headers["content-type"] == "application/json"
    doc = got.json()
    assert doc["model_spec"] == {"name": "scorer", "signature_name": "", "version": "1"}
    found = doc["metadata"]["signature_def"]["signature_def"]
    assert found["regress"] == {
        "inputs": {
            "inputs": {
                "dtype": "DT_STRING",
                "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
                "name": "tf_example:0",
            }
        },
        "outputs": {
            "outputs": {
                "dtype": "DT_FLOAT",
                "tensor_shape": {
                    "dim": [{"size": "-1", "name": ""}, {"size": "1", "name": ""}],
                    "unknown_rank": False,
                },
                "name": "y:0",
            }
        },
        "method_name": "tensorflow/serving/regress",
        "defaults": {},
    }
    for version in ("versions/1", "labels/stable"):
        one = served.client.get(f"/v1/models/half/{version}/metadata").json()
        assert one["model_spec"]["version"] == "1"


def test_metadata_lists_the_initializer_of_a_model_which_cannot_be_called(served: Served) -> None:
    found = served.client.get("/v1/models/half/metadata").json()["metadata"]["signature_def"]["signature_def"]
    initializer = found["__saved_model_init_op"]
    assert initializer["inputs"] == {}
    assert initializer["outputs"]["__saved_model_init_op"]["dtype"] == "DT_INVALID"
    got = served.client.post(PREDICT, json={"instances": [1.0], "signature_name": "__saved_model_init_op"})
    assert got.status_code == 400
    assert got.json()["error"].startswith("Failed to get input map for signature: __saved_model_init_op")


def test_the_prometheus_page_counts_the_caller_s_requests(served: Served) -> None:
    served.client.post(PREDICT, content=ONE)
    served.client.post(PREDICT, content=b"{")
    got = served.client.get("/monitoring/prometheus/metrics")
    assert (got.status_code, got.headers["content-type"]) == (200, "text/plain")
    lines = got.text.splitlines()
    assert "# TYPE :tensorflow:serving:request_count counter" in lines
    counts = dict(line.rsplit(" ", 1) for line in lines if line.startswith(":"))
    for status in ("OK", "INVALID_ARGUMENT"):
        assert int(counts[f':tensorflow:serving:request_count{{model_name="half",status="{status}"}}']) >= 1
    labels = 'model_name="half",API="predict",entrypoint="REST"'
    total = counts[f":tensorflow:serving:request_latency_count{{{labels}}}"]
    assert counts[f':tensorflow:serving:request_latency_bucket{{{labels},le="+Inf"}}'] == total


def test_a_browser_of_another_origin_is_let_in_where_the_setting_says_so(served: Served) -> None:
    where = str(served.client.base_url).rstrip("/") + PREDICT
    asked = httpx.request("OPTIONS", where, headers={"Origin": "https://page.example"})
    assert asked.status_code == 200
    good = served.client.post(PREDICT, content=ONE, headers={"Origin": "https://page.example"})
    bad = served.client.post(PREDICT, content=b"{", headers={"Origin": "https://page.example"})
    for got in (asked, good, bad):
        assert got.headers["access-control-allow-origin"] == "*"
        assert got.headers["access-control-allow-methods"] == "POST, GET"
        assert "Content-Type" in got.headers["access-control-allow-headers"]
    nobody = httpx.request("OPTIONS", where)
    assert nobody.status_code == 400
    assert nobody.json() == {"error": "Origin header is missing in CORS preflight"}
