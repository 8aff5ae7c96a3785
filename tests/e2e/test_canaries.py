"""Planted secrets and payloads, a stack provoked in every way at hand, and not one of them in any log or refusal."""

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from signalbox.program import keys
from signalbox.wire.modeldocs import Signature, TensorSpec
from tests.rigs import models, outage
from tests.rigs.canaries import canary, leaks, read_all
from tests.rigs.outage import House, becomes, floats

pytestmark = pytest.mark.timeout(300)

NUMBER: Final = 77.015625
"""A payload's number, exact in float32, so that every program would write it the same."""
DEBUG: Final = {"SIGNALBOX_LOG_LEVEL": "DEBUG"}
PLANTED: Final = (
    "text",
    "key in a query",
    "idempotency key",
    "cookie",
    "basic login",
    "password",
    "bearer",
    "metadata",
)


def text_signature() -> Signature:
    """What ``models.shout`` takes and gives."""
    text = TensorSpec(dtype="string", shape=(-1,))
    length = TensorSpec(dtype="int32", shape=(-1,))
    return Signature(inputs={"text": text}, outputs={"loud": text, "length": length})


class Provoker:
    """Calls the front in every wrong way there is; keeps what refusals said."""

    def __init__(self, base: str, key: str, planted: Mapping[str, str]) -> None:
        self.base, self.key, self.planted = base, key, planted
        self.refusals: dict[str, str] = {}
        self.statuses: set[int] = set()
        self.asked: list[str] = []

    async def call(self, what: str, method: str, path: str, *, key: str | None = None, **more: Any) -> httpx.Response:
        """One call; its answer is kept if it is a refusal."""
        given = self.key if key is None else key
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        headers |= {
            "Idempotency-Key": f"{self.planted['idempotency key']}-{len(self.asked)}",
            "Cookie": f"s={self.planted['cookie']}",
            "X-Api-Key": self.planted["key in a query"],
        }
        headers |= more.pop("headers", {})
        self.asked.append(what)
        async with httpx.AsyncClient(base_url=self.base, timeout=60) as client:
            got = await client.request(method, path, headers=headers, **more)
        self.statuses.add(got.status_code)
        if got.status_code >= 400:
            self.refusals[f"{what}: {got.status_code}"] = f"{dict(got.headers)} {got.text}"
        return got

    async def provoke(self) -> None:
        """What callers get wrong: keys, forms, paths, sizes, models that fail."""
        text = self.planted["text"]
        body = json.dumps({"instances": [text, text]}).encode()
        mutated = self.key[:-1] + ("a" if self.key[-1] != "a" else "b")
        for name, key in {
            "no key": "",
            "mutated key": mutated,
            "unknown key": keys.mint("test")[0],
            "no key at all": text,
        }.items():
            await self.call(name, "POST", "/v1/models/shout:predict", key=key, content=body)
        login = base64.b64encode(f"x:{self.planted['basic login']}".encode()).decode()
        await self.call("basic", "GET", "/v1/models", headers={"Authorization": f"Basic {login}"})
        query = f"/v1/jobs?api_key={self.planted['key in a query']}"
        await self.call("query", "POST", query, json={"model": "unknown", "instances": [text]})
        wrong: dict[str, bytes] = {
            "cut short": body[:-1],
            "twice": b"{" + b'"instances":["' + text.encode() + b'"],"instances":1}',
            "not JSON": text.encode(),
            "deep": b'{"instances":' + b"[" * 99 + text.encode(),
            "odd number": b'{"instances":[1e999999,"' + text.encode() + b'"]}',
            "bad text": b'{"instances":["' + text.encode() + b'\xff\xfe"]}',
        }
        for name, content in wrong.items():
            for path in ("/v1/models/shout:predict", "/v1/jobs", "/v2/models/shout/infer"):
                await self.call(name, "POST", path, content=content)
        for name, doc in {
            "wrong dtype": {"instances": [text]},
            "wrong name": {"inputs": {text: [NUMBER]}},
            "wrong shape": {"instances": [[NUMBER]]},
        }.items():
            await self.call(name, "POST", "/v1/models/picky:predict", json=doc)
        job = {"model": "picky", "instances": [-NUMBER], "metadata": {"note": self.planted["metadata"]}}
        await self.call("as a job", "POST", "/v1/jobs", json=job)
        for path in ("/v1/jobs/nothing", f"/v1/jobs/{text}", "/nowhere", "/v1/models/shout:regress"):
            await self.call(path[:12], "GET", path)
        await self.call("gzip", "POST", "/v1/jobs", content=body, headers={"Content-Encoding": "gzip"})

    async def fail(self) -> str:
        """A job that its model refuses, in words that name the value; what its caller is told."""
        job = {"model": "picky", "instances": [-NUMBER]}
        got = await self.call("as a job", "POST", "/v1/jobs", json=job)
        assert got.status_code == 202, got.text
        path = f"/v1/jobs/{got.json()['id']}"

        async def has_failed() -> bool:
            return bool((await self.call("job", "GET", path)).json().get("state") == "failed")

        await becomes(has_failed, limit_s=120)
        return (await self.call("job", "GET", path)).text


async def provoke_console(base: str, planted: Mapping[str, str]) -> dict[str, str]:
    """Wrong logins, wrong tokens, no CSRF token; what the refusals said."""
    said: dict[str, str] = {}
    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        page = await client.get("/login")
        token = page.text.partition('csrfmiddlewaretoken" value="')[2].partition('"')[0]
        form = {"username": "admin", "password": planted["password"]}
        answers = {
            "wrong login": await client.post("/login", data=form | {"csrfmiddlewaretoken": token}),
            "no CSRF token": await client.post("/login", data=form),
            "wrong token": await client.get("/api/models", headers={"Authorization": f"Bearer {planted['bearer']}"}),
            "not found": await client.get("/nowhere", headers={"Cookie": f"s={planted['cookie']}"}),
        }
        for name, got in answers.items():
            said[f"console, {name}: {got.status_code}"] = f"{dict(got.headers)} {got.text}"
    assert answers["wrong token"].status_code == 401
    assert answers["no CSRF token"].status_code == 403
    return said


async def test_no_secret_and_no_payload_gets_into_a_log_or_a_refusal(tmp_path: Path) -> None:
    planted = {name: canary(name.replace(" ", "-")) for name in PLANTED}
    folder = tmp_path / "data"
    settings = dict.fromkeys(("gateway", "worker", "console"), DEBUG)
    async with outage.house(folder, settings) as house:
        key = await house.add_key()
        await house.add_model("picky", models.picky(), floats())
        await house.add_model("shout", models.shout(), text_signature())
        await asyncio.gather(house.start_console(), house.start_worker(1))
        provoker = Provoker(house.front_url, key, planted)

        async def answers() -> bool:
            asked = {"instances": [planted["text"], "x"]}
            got = await provoker.call("start", "POST", "/v1/models/shout:predict", json=asked)
            return got.status_code == 200

        await becomes(answers, limit_s=120)
        await provoker.provoke()
        reported = await provoker.fail()
        said = await provoke_console(house.console_url, planted)
        await break_things(house, provoker)
        secrets = read_all((folder / "secrets").iterdir())
    planted |= {Path(name).name: text.strip() for name, text in secrets.items()} | {"API key": key}
    planted["console secret key"] = (folder / "console" / "secret_key").read_text()
    logs = read_all((folder / "logs").rglob("*"))
    assert len(logs) >= 6, sorted(logs)
    assert sum(map(len, logs.values())) > 10_000
    assert {400, 401, 404} <= provoker.statuses
    denied = [name for name, text in logs.items() if "permission_denied" in text]
    assert denied == []  # and no program tried what its NATS user may not
    everything = {**logs, **said, "printed": "\n".join(house.said)}
    # TensorFlow Serving's words show the value that they refuse, and a model's own may: to its caller, nowhere else.
    echoed = {name: text for name, text in provoker.refusals.items() if name.startswith("wrong dtype")}
    assert {leak.name for leak in leaks(echoed, planted)} == {"text"}
    assert leaks({**everything, **{n: t for n, t in provoker.refusals.items() if n not in echoed}}, planted) == []
    assert str(NUMBER) in reported
    assert [name for name, text in everything.items() if str(NUMBER) in text] == []


async def break_things(house: House, provoker: Provoker) -> None:
    """NATS dies under a request, and so does the worker: the programs that notice log it."""
    asked = {"instances": [provoker.planted["text"]]}
    await house.kill("nats")
    got = await provoker.call("without NATS", "POST", "/v1/models/shout:predict", json=asked)
    assert got.status_code == 503
    await house.revive("nats")
    await house.kill("worker-1")
    await provoker.call("without a worker", "POST", "/v1/jobs", json={"model": "shout", **asked})
