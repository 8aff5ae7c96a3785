"""Two controllers and two consoles on one PostgreSQL: one controller leads, both consoles serve."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httpx
import pytest
import pytest_asyncio
import websockets

from signalbox.bus.table import put
from signalbox.ops import probes
from signalbox.ops.ports import HOST, free_port
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.stack import ADMIN
from signalbox.wire import messages, names
from signalbox.wire.names import SCALE, Bucket
from signalbox.wire.scaling import Host, HostDevice, Scale
from signalbox.wire.workerdocs import Device
from tests.rigs import models, postgres
from tests.rigs.outage import House, becomes
from tests.rigs.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]
CONTROLLERS = ("controller-a", "controller-b")
WAIT_S = 60


class Pair:
    """The stack, and the addresses of its consoles."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.password = house.data.admin_password().read_text().strip()
        self.consoles = (house.console_url, f"http://{HOST}:{free_port()}")

    async def start(self) -> None:
        """All four, each with a data folder of its own, as on machines of their own."""
        house = self.house
        env = house._console_env()
        await house.run_to_end("bootstrap", "console", "bootstrap", env=env)
        async with asyncio.TaskGroup() as group:
            for number, url in enumerate(self.consoles):
                own = {
                    "SIGNALBOX_CONSOLE_LISTEN": url.removeprefix("http://"),
                    "SIGNALBOX_CONSOLE_DATA_DIR": str(house.data.path / f"console-{number}"),
                }
                ready = partial(probes.http, url, "/login")
                spec = house.spec(f"console-{number}", "console", "serve", env={**env, **own}, ready=ready)
                group.create_task(house.start(spec))
            for name in CONTROLLERS:
                own = {"SIGNALBOX_CONSOLE_DATA_DIR": str(house.data.path / name)}
                group.create_task(house.start(house.spec(name, "console", "controller", env={**env, **own})))

    def said(self, name: str) -> list[dict[str, Any]]:
        """The log of a program."""
        lines = self.house.child(name).log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def leaders(self, event: str = "scaling.leads") -> list[str]:
        """Controllers that have said so."""
        return [name for name in CONTROLLERS if any(line["event"] == event for line in self.said(name))]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    programs = postgres.programs()
    if programs is None:
        pytest.skip("PostgreSQL's own programs are not installed")
    async with Postgres(programs) as database:
        settings = {
            "SIGNALBOX_CONSOLE_DATABASE_URL": database.url,
            "SIGNALBOX_CONSOLE_SECRET_KEY": "the same for both" * 4,
            "SIGNALBOX_CONSOLE_CLASSES": "cpu=0",
        }
        with DataDir(tmp_path_factory.mktemp("twice") / "data") as data:
            house = House(data, {"console": settings})
            try:
                await house.start_nats()
                made = Pair(house)
                await made.start()
                async with ConsoleClient(house.console_url, await house.operator_token()) as console:
                    await console.register("half", models.half_plus_two().parent, "y = x / 2 + 2")
                yield made
            finally:
                await house.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def operator(pair: Pair) -> AsyncIterator[httpx.AsyncClient]:
    """The REST API of the first console."""
    async with pair.house.operator(await pair.house.operator_token()) as client:
        yield client


async def until(pair: Pair, is_so: Callable[[Scale], bool]) -> Scale:
    """Wait for what is wanted of the fleet to be as told."""
    bus, key = pair.house.bus, names.key(Bucket.DESIRED, SCALE)
    changed = asyncio.Event()
    heard = await bus.subscribe(names.event_of_key(Bucket.DESIRED), lambda _: changed.set())
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                stored = await bus.leader_get(Bucket.DESIRED.stream, key)
                found = messages.decode(Scale, stored.data) if stored is not None and stored.data else Scale()
                if is_so(found):
                    return found
                await changed.wait()
                changed.clear()
    finally:
        await heard.close()


async def test_one_controller_decides_alone_and_the_other_goes_on_when_it_is_killed(
    pair: Pair, operator: httpx.AsyncClient
) -> None:
    devices = tuple(
        HostDevice(device=Device(id=f"cpu-{n}", kind="cpu", name=f"cpu:{n}"), class_="cpu") for n in range(4)
    )
    now = time.time()
    host = Host(id="h", host="h", devices=devices, started_at=now, beat_at=now)
    await put(pair.house.bus, Bucket.HOSTS, names.token("h"), host, ttl_s=WAIT_S * 2)

    async def wanted(replicas: int) -> None:
        changed = await operator.patch("/api/models/half", json={"replicas": replicas})
        assert changed.status_code == 200, changed.text
        await until(pair, lambda scale: bool(scale.classes) and scale.classes["cpu"].wanted == replicas)

    for replicas in (2, 3):
        await wanted(replicas)  # of the second the first is in the log
    (leader,) = pair.leaders()
    assert pair.leaders("scaling.workers_wanted") == [leader], "the other one decides nothing"
    (other,) = {*CONTROLLERS} - {leader}
    await pair.house.kill(leader)
    await wanted(4)

    async def has_said() -> bool:
        return pair.leaders("scaling.workers_wanted") == list(CONTROLLERS)

    await becomes(has_said)  # it says so once it is done
    assert pair.leaders() == list(CONTROLLERS)
    told = [line["classes"] for line in pair.said(other) if line["event"] == "scaling.workers_wanted"]
    assert told == [{"cpu": 4}], "it goes on from where the first one was"


async def test_who_signs_in_at_one_console_is_served_by_both_and_sees_there_what_is_done_here(
    pair: Pair, operator: httpx.AsyncClient
) -> None:
    first, second = pair.consoles
    async with httpx.AsyncClient(timeout=WAIT_S) as browser:
        form = re.search(r'csrfmiddlewaretoken" value="([^"]+)', (await browser.get(f"{first}/login")).text)
        assert form
        login = {"username": ADMIN, "password": pair.password, "csrfmiddlewaretoken": form[1]}
        assert (await browser.post(f"{first}/login", data=login)).status_code == 302
        for console in pair.consoles:
            page = await browser.get(f"{console}/models")
            assert (page.status_code, "half" in page.text) == (200, True), console
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        board = websockets.connect(
            second.replace("http:", "ws:") + "/ws/live",
            additional_headers={"Cookie": cookies},
            origin=websockets.Origin(second),
        )
        async with board as live:
            await live.send('{"t": "sub", "topics": ["queues"]}')
            await row(live, lambda half: not half.get("is_paused"))
            body = {"on": True, "reason": "shown at both"}
            paused = await operator.put("/api/models/half/pause", json=body)
            assert paused.status_code == 200, paused.text
            assert (await row(live, lambda half: half.get("is_paused", False)))["paused_reason"] == "shown at both"
        assert (await operator.patch("/api/models/half", json={"replicas": 7})).status_code == 200
        there = await browser.get(f"{second}/api/models/half")
        assert (there.status_code, there.json()["replicas"]) == (200, 7)


async def row(live: websockets.ClientConnection, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The row of the model as the live board has it, once it is as told."""
    found: dict[str, Any] = {}
    async with asyncio.timeout(WAIT_S):
        while not found or not is_so(found):
            message = json.loads(await live.recv())
            rows = message.get("state") or message.get("set") or {}
            found |= rows.get("half", {})
    return found
