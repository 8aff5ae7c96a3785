"""The Python client and several fronts: even shares, and no error when one of them is killed under load."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from signalbox.bus import table
from signalbox.client import AsyncClient, Job
from signalbox.ops.ports import free_port
from signalbox.wire import names
from signalbox.wire.names import Bucket
from tests.integration.gateway_plugin.test_gateway_process import plugin, published
from tests.rigs.gateway import ScriptedWorker, model
from tests.rigs.natsserver import NatsServer

CALLERS = 12
CALLS = 240
"""Before a front is killed, and after."""


async def accepted(ports: Iterable[int]) -> list[int]:
    """Jobs that each plugin has accepted, by its metrics."""
    async with httpx.AsyncClient(timeout=60) as client:
        texts = [(await client.get(f"http://127.0.0.1:{port}/metrics")).text for port in ports]
    samples = [[one for each in text_string_to_metric_families(text) for one in each.samples] for text in texts]
    return [int(sum(one.value for one in found if one.name == "signalbox_jobs_accepted_total")) for found in samples]


def are_even(shares: list[int]) -> bool:
    """Whether none differs by more than a tenth from an equal share."""
    equal = sum(shares) / len(shares)
    return all(abs(share - equal) <= equal / 10 for share in shares)


async def followed(client: AsyncClient, job: Job) -> list[str]:
    return [event.state async for event in client.events(job)]


class Load:
    """Predictions and submissions of several callers, and the jobs that came of the latter."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.jobs: list[str] = []
        self.answered = asyncio.Semaphore(0)

    async def call(self, number: int) -> None:
        x = np.array([number, 2.0], np.float32)
        if number % 2:
            answer = await self._client.predict("half", {"x": x})
            np.testing.assert_array_equal(answer["y"], x / 2 + 2)
        else:
            self.jobs.append((await self._client.submit("half", {"x": x})).id)
        self.answered.release()

    async def run(self, numbers: Iterable[int]) -> None:
        """Every call once, by several callers. Raises what one of them raises."""
        left = iter(numbers)

        async def caller() -> None:
            for number in left:
                await self.call(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())


async def test_one_of_three_fronts_is_killed_under_load(own_nats: NatsServer) -> None:
    bus, mine = await published(own_nats.url)
    await table.put(bus, Bucket.MODELS, names.token("held"), model("held"))
    ports, scraped = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(ScriptedWorker(bus, "half"))
        fronts = [
            await stack.enter_async_context(
                plugin(own_nats.url, "", edge_listen=f"127.0.0.1:{port}", metrics_port=metrics)
            )
            for port, metrics in zip(ports, scraped, strict=True)
        ]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        client = await stack.enter_async_context(AsyncClient(urls, mine.text))
        load = Load(client)
        held = [await client.submit("held", {"x": np.zeros(1, np.float32)}) for _ in fronts]
        followers = [asyncio.create_task(followed(client, job)) for job in held]  # one at each front
        await load.run(range(CALLS))
        shares = await accepted(scraped)
        assert are_even(shares), shares
        running = asyncio.create_task(load.run(range(CALLS, 3 * CALLS)))
        for _ in range(CALLS + CALLS // 4):
            await load.answered.acquire()
        fronts[1].process.kill()
        await fronts[1].process.wait()
        before = await accepted([scraped[0], scraped[2]])
        await running
        after = await accepted([scraped[0], scraped[2]])
        survivors = [two - one for one, two in zip(before, after, strict=True)]
        print(f"shares of three fronts: {shares}; of two after a kill: {survivors}")
        assert are_even(survivors), survivors
        assert len(set(load.jobs)) == len(load.jobs) == 3 * CALLS // 2
        async with ScriptedWorker(bus, "held"):
            assert [states[-1] for states in await asyncio.gather(*followers)] == ["succeeded"] * 3
        for job in load.jobs[-20:]:
            assert (await client.wait(job)).state == "succeeded"
    await bus.close()
