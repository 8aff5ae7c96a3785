"""The verbs of queues over HTTP: what of a call reaches the queue, and what its caller reads."""

import json
from typing import Any

import pytest

from gateway_plugin.queues.items import Consumer
from gateway_plugin.queues.reading import Get
from tests.rigs.memoryqueues import queue_front

TRACE = f"00-{1:032x}-{1:016x}-01"
USER = {"X-EAS-QueueService-Redis-Uid": "u1", "X-EAS-QueueService-Redis-Gid": "eas"}


async def test_a_put_gives_the_index_as_text_and_the_request_s_id() -> None:
    async with queue_front() as (front, _, client):
        made = await client.post("/api/predict/chat?kind=cat&_priority_=1", content=b"\x00raw", headers=USER)
        named = await client.post("/v1/queues/chat/sink?requestId=r-7", content=b"")
        header = await client.post("/v1/queues/chat", headers={"X-EAS-QueueService-Priority": "2"})
    assert (made.status_code, made.text, made.headers["content-type"]) == (200, "1", "text/plain; charset=utf-8")
    (first, third), (second,) = front.queues.items["source"], front.queues.items["sink"]
    assert (first.data, first.is_high, first.tags["kind"]) == (b"\x00raw", True, "cat")
    assert made.headers["x-eas-queueservice-request-id"] == first.request_id != second.request_id
    assert (named.text, named.headers["x-eas-queueservice-request-id"]) == ("2", "r-7")
    assert (header.text, third.is_high, second.is_high) == ("3", True, False)


@pytest.mark.parametrize(("given", "kept"), [(TRACE, TRACE), ("00-ff-01", ""), (f"{TRACE}x", "")])
async def test_a_put_keeps_the_trace_that_it_is_part_of(given: str, kept: str) -> None:
    async with queue_front() as (front, _, client):
        await client.post("/v1/queues/chat", content=b"x", headers={"traceparent": given})
    assert [item.trace for item in front.queues.items["source"]] == [kept]


@pytest.mark.parametrize("given", ["a%0D%0AX-Evil:%201", "%00", "a%7F", "%20a", "a%20", "%09"])
async def test_a_request_s_id_that_no_header_can_say_is_refused_before_anything_is_stored(given: str) -> None:
    async with queue_front() as (front, _, client):
        refused = await client.post(f"/v1/queues/chat?requestId={given}", content=b"x")
        told = await client.post("/v1/queues/chat?requestId=a%20b-%F0%9F%98%80&note=%0D%0A", content=b"y")
    assert refused.status_code == 400
    assert "requestId" in refused.json()["detail"]
    assert told.status_code == 200
    assert [item.data for item in front.queues.items["source"]] == [b"y"]


async def test_a_get_is_protobuf_raw_or_nothing() -> None:
    async with queue_front() as (front, _, client):
        await client.post("/v1/queues/chat?who=%C3%A9%F0%9F%98%80", content=b"one")
        asked = "_index_=-1&_length_=1&_timeout_=5s&_auto_delete_=false"
        listed = await client.get(f"/api/predict/chat?{asked}&_raw_=false", headers=USER)
        raw = await client.get("/v1/queues/chat?_raw_=true&_timeout_=2m")
        nothing = await client.get("/v1/queues/chat", headers={"X-EAS-QueueService-Access-Rear": "true"})
    assert listed.headers["content-type"] == "application/vnd.google.protobuf"
    assert b"\x1a\x03one" in listed.content
    assert (raw.content, raw.headers["content-type"]) == (b"one", "application/octet-stream")
    assert raw.headers["x-signalbox-index"] == "1"
    assert json.loads(raw.headers["x-signalbox-tags"])["who"] == "é😀"
    assert (nothing.status_code, nothing.content) == (204, b"")
    assert [one[2] for one in front.queues.asked] == [
        Get(index=-1, length=1, timeout_s=5.0, is_deleting=False),
        Get(index=0, length=1, timeout_s=60.0, is_deleting=True),
        Get(index=0, length=1, is_rear=True),
    ]


async def test_a_get_bounds_what_it_asks_for_and_filters_by_tags() -> None:
    async with queue_front() as (front, _, client):
        await client.get("/v1/queues/chat/sink?requestId=r-7&_length_=99999")
    assert front.queues.asked == [("get", "sink", Get(length=1000, tags={"requestId": "r-7"}))]


@pytest.mark.parametrize(
    ("method", "query", "headers", "form", "asked"),
    [
        ("DELETE", "_indexes_=1%2C2", {}, b"", ("delete", "source", (1, 2), False)),
        ("DELETE", "_indexes_=4", {"X-EAS-QueueService-Access-Rear": "true"}, b"", ("delete", "source", (4,), True)),
        ("DELETE", "_index_=9&_trunc_=true", {}, b"", ("truncate", "source", 9)),
        ("DELETE", "_forget_=true", {"X-EAS-QueueService-Redis-Gid": "g"}, b"", ("forget", "source", "g")),
        ("POST", "_eos_=true", {}, b"", ("end", "source", False)),
        ("POST", "_eos_=true&_force_=true", {}, b"", ("end", "source", True)),
        (
            "PUT",
            "_indexes_=3&_negative_=true&_code_=Shutdown&_reason_=bye",
            USER,
            b"",
            ("negative", "source", Consumer("eas", "u1"), (3,), "Shutdown", "bye"),
        ),
        (
            "PUT",
            "_indexes_=3&_negative_=true",
            {**USER, "Content-Type": "application/x-www-form-urlencoded"},
            b"_code_=OutOfMemory&_reason_=too+large",
            ("negative", "source", Consumer("eas", "u1"), (3,), "OutOfMemory", "too large"),
        ),
    ],
)
async def test_other_verbs_say_ok(
    method: str, query: str, headers: dict[str, str], form: bytes, asked: tuple[Any, ...]
) -> None:
    async with queue_front() as (front, _, client):
        done = await client.request(method, f"/v1/queues/chat?{query}", headers=headers, content=form)
    assert (done.status_code, done.text) == (200, "OK")
    assert front.queues.asked == [asked]


async def test_search_count_and_attributes_are_json() -> None:
    async with queue_front() as (front, _, client):
        found = await client.get("/api/predict/chat?_search_=true&_index_=1033", headers=USER)
        count = await client.get("/api/predict/chat/sink?_count_=true&_priority_=1&kind=cat")
        attributes = await client.get("/api/predict/chat?_attrs_=true")
    assert found.json() == {"IsPending": True, "WaitCount": 3}
    assert count.json() == 7
    assert attributes.json() == {"meta.name": "chat", "stream.length": "0"}
    assert front.queues.asked == [("search", "source", "eas", 1033), ("count", "sink", {"kind": "cat"}, True)]


async def test_a_post_that_says_nothing_of_queues_is_a_prediction_where_a_model_has_the_name() -> None:
    async with queue_front() as (_, _, client):
        predicted = await client.post("/api/predict/chat", content=b'{"instances": [1]}')
        put = [
            await client.post("/api/predict/chat", content=b"x", headers=USER),
            await client.post("/api/predict/chat?_priority_=0", content=b"x"),
            await client.post("/v1/queues/chat", content=b"x"),
            await client.post("/api/predict/chat/sink", content=b"x"),
        ]
        read = await client.get("/api/predict/chat?_count_=true")
        neither = await client.post("/api/predict/other", content=b"x")
    assert predicted.text == 'chat got {"instances": [1]}'
    assert [one.text for one in put] == ["1", "2", "3", "4"]
    assert read.text == "7"
    assert neither.status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/v1/queues/other", 404, "no queue"),
        ("PATCH", "/v1/queues/chat", 405, "POST, GET, PUT, DELETE"),
        ("GET", "/v1/queues/chat?_length_=0", 400, "_length_"),
        ("GET", "/v1/queues/chat?_timeout_=soon", 400, "_timeout_"),
        ("GET", "/v1/queues/chat?_raw_=true&_length_=2", 400, "_raw_"),
        ("GET", "/v1/queues/chat?_watch_=true", 400, "Upgrade: websocket"),
        ("GET", "/v1/queues/chat?_search_=true", 400, "_index_"),
        ("PUT", "/v1/queues/chat", 400, "_indexes_"),
        ("PUT", "/v1/queues/chat?_indexes_=1&_negative_=true&_code_=Lost", 400, "Redis-Uid"),
        ("PUT", "/v1/queues/chat?_indexes_=1", 409, "not given out"),
        ("DELETE", "/v1/queues/chat", 400, "_indexes_"),
        ("DELETE", "/v1/queues/chat?_trunc_=true&_index_=9&_forget_=true", 400, "leave _forget_ out"),
        ("POST", "/v1/queues/chat?_x_=1", 400, "_x_"),
    ],
)
async def test_a_refusal_is_a_problem_with_cause_and_mend(method: str, path: str, status: int, said: str) -> None:
    async with queue_front() as (_, _, client):
        refused = await client.request(method, path)
    assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
    assert said in json.dumps(refused.json())


async def test_who_may_only_get_may_not_put_and_nobody_may_nothing() -> None:
    async with queue_front() as (_, _, client):
        answers = [
            (await client.request(method, "/v1/queues/chat", headers={"Authorization": key})).status_code
            for method, key in [("POST", "reader"), ("GET", "reader"), ("GET", "nobody")]
        ]
    assert answers == [403, 204, 401]


async def test_a_consumer_s_ids_are_bounded() -> None:
    async with queue_front() as (_, _, client):
        refused = await client.put("/v1/queues/chat?_indexes_=1", headers={"X-EAS-QueueService-Redis-Gid": "a b"})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
