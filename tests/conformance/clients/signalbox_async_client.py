"""Our own client for asyncio, in an environment that has what a base install brings and nothing else."""

from typing import Any

import numpy as np

from signalbox.client import AsyncClient
from tests.conformance.clients.steps import Target, take


async def predict_many(target: Target) -> Any:
    items = [{"x": np.array([number], np.float32)} for number in range(40)]
    async with AsyncClient(target.url, target.key) as client:
        return [float(answer["y"][0]) async for _, answer in client.map("half", items, in_flight=8)]


if __name__ == "__main__":
    take(__name__)
