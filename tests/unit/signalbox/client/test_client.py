"""The API client against a real socket that answers what a test tells it."""

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from signalbox.client import AsyncClient, Client, errors
from tests.rigs.scriptedfront import front, json_answer


async def test_predict_sends_the_key_and_the_rows_and_returns_the_answer() -> None:
    seen: list[bytes] = []

    def answer(request: bytes) -> bytes:
        seen.append(request)
        return json_answer(200, b'{"predictions": [2.5]}')

    async with front(answer) as (url, _), AsyncClient(url, "sb_key") as client:
        reply = await client.predict("half", instances=[1.0], signature="s", version=3)
    assert reply == {"predictions": [2.5]}
    assert seen[0].startswith(b"POST /v1/models/half/versions/3:predict HTTP/1.1\r\n")
    assert b"Authorization: Bearer sb_key\r\n" in seen[0]
    assert seen[0].endswith(b'{"signature_name":"s","instances":[1.0]}')


async def test_a_problem_becomes_the_error_of_its_code_with_message_and_retry_after() -> None:
    body = b'{"code": "queue_full", "detail": "The queue is full.", "status": 429}'
    async with (
        front(lambda _: json_answer(429, body, "Retry-After: 7")) as (url, _),
        AsyncClient(url, "k", retries=0) as client,
    ):
        with pytest.raises(errors.QueueFull, match="queue is full") as caught:
            await client.submit("m", instances=[1])
    assert caught.value.retry_after_s == 7


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (413, errors.TooLarge),
        (503, errors.Unavailable),
        (504, errors.DeadlineExceeded),
    ],
)
async def test_an_error_without_a_code_is_named_by_its_status(status: int, kind: type[errors.SignalboxError]) -> None:
    answer = json_answer(status, b'{"error": "words"}')
    async with front(lambda _: answer) as (url, _), AsyncClient(url, "k", retries=0) as client:
        with pytest.raises(kind, match="words") as caught:
            await client.predict("m", instances=[1])
    assert type(caught.value) is kind


def certified(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate of that name, and that of a client which trusts it."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", f"/CN={name}", "-days", "1"]
    made += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(certificate, key)
    return there, ssl.create_default_context(cafile=str(certificate))


@pytest.mark.parametrize("named", ["localhost", "elsewhere"])
async def test_a_name_s_addresses_are_called_by_the_name_that_their_certificate_has(tmp_path: Path, named: str) -> None:
    there, here = certified(tmp_path, named)
    seen: list[bytes] = []

    def answer(request: bytes) -> bytes:
        seen.append(request)
        return json_answer(200, b'{"models": []}')

    def plainly(url: str) -> dict[str, Any]:
        with Client(url, "k", tls=here) as client:
            return client.models()

    async with front(answer, there) as (url, _), AsyncClient(url, "k", tls=here) as client:
        if named == "localhost":
            assert await client.models() == await asyncio.to_thread(plainly, url) == {"models": []}
            assert b"Host: " + url.removeprefix("https://").encode() in seen[0]
        else:
            with pytest.raises(errors.Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await client.models()


async def test_wait_asks_until_the_job_has_ended() -> None:
    states = iter(["queued", "running", "succeeded"])

    def answer(request: bytes) -> bytes:
        assert request.startswith(b"GET /v1/jobs/j1 ")
        return json_answer(200, f'{{"id": "j1", "state": "{next(states)}"}}'.encode())

    async with front(answer) as (url, _), AsyncClient(url, "k", retries=0) as client:
        status = await client.wait("j1", timeout_s=10)
    assert status.state == "succeeded"
    assert status.has_ended


async def test_wait_gives_up_after_its_timeout() -> None:
    answer = json_answer(200, b'{"id": "j1", "state": "queued"}')
    async with front(lambda _: answer) as (url, _), AsyncClient(url, "k", retries=0) as client:
        with pytest.raises(errors.DeadlineExceeded):
            await client.wait("j1", timeout_s=0.05)


async def test_either_instances_or_inputs_must_be_given() -> None:
    with Client("http://127.0.0.1:1", "k") as client:
        with pytest.raises(errors.InvalidRequest):
            client.predict("m")
        with pytest.raises(errors.InvalidRequest):
            client.predict("m", [1], instances=[1])


async def test_errors_of_other_modules_of_the_same_process_are_not_taken_for_those_of_an_answer() -> None:
    from signalbox.front.jsonbody import NotAnObject

    assert NotAnObject.code == errors.InvalidRequest.code
    body = b'{"code": "invalid_request", "detail": "odd", "status": 400}'
    async with front(lambda _: json_answer(400, body)) as (url, _), AsyncClient(url, "k") as client:
        with pytest.raises(errors.InvalidRequest, match="odd") as caught:
            await client.job("one")
    assert type(caught.value) is errors.InvalidRequest


def test_a_misspelt_option_is_refused_and_not_ignored() -> None:
    with Client("http://127.0.0.1:1", "k") as client:
        wrong: dict[str, Any] = {"labl": "canary"}
        x = {"x": np.zeros(1)}
        for call in (client.predict, client.submit):
            with pytest.raises(TypeError, match=r"unknown options: labl; this call takes .*label"):
                call("m", x, **wrong)
        with pytest.raises(TypeError, match=r"unknown options: labl; this call takes .*state"):
            next(client.jobs(**wrong))
        with pytest.raises(errors.InvalidRequest, match="Say which input the array is"):
            client.predict("m", np.zeros(1))
