"""Measures what a batch of lines costs a live caller of the same model: windows with and without one, in turn."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.front.path import BODY, PATH
from benchmarks.rig.bed import headers_of
from signalbox.ops.httppool import ConnectionPool
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.main import bring_up
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import Unavailable

ROUNDS: Final = 4
LINES: Final = 50_000
"""More than a window takes, so that the batch runs through it; then it is cancelled."""
_BOUNDARY: Final = "a-batch-of-lines"
_POLL_S: Final = 0.1


async def measure(folder: Path, *, seconds: float) -> None:
    """Print p50, p95 and the longest of one live caller, alone and beside a batch, and the batch's lines a second."""
    options = UpOptions(data=folder, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            headers = headers_of((await bring_up(stack)).api_key)
            alone, beside, lines = [], [], 0.0
            pool = ConnectionPool(stack.front_url, timeout_s=30.0)
            try:
                file = await _upload(pool, headers)
                for _ in range(ROUNDS):
                    alone += await live(pool, headers, seconds)
                    batch = await _begun(pool, headers, file)
                    before, began = await _completed(pool, headers, batch), time.monotonic()
                    beside += await live(pool, headers, seconds)
                    done = await _completed(pool, headers, batch) - before
                    lines += done / (time.monotonic() - began) / ROUNDS
                    await _cancelled(pool, headers, batch)
            finally:
                await pool.close()
        finally:
            await stack.stop()
    shown("alone", alone)
    shown("beside a batch", beside)
    print(f"lines of the batch a second, meanwhile: {lines:.0f}", flush=True)


def shown(name: str, took: list[float]) -> None:
    """Print p50, p95 and the longest of these milliseconds."""
    ranked = sorted(took)
    p50, p95 = (ranked[int(len(ranked) * share)] for share in (0.5, 0.95))
    print(
        f"{name:<16} p50 {p50:5.1f} ms, p95 {p95:5.1f} ms, most {ranked[-1]:5.1f} ms, {len(ranked)} calls", flush=True
    )


async def live(pool: ConnectionPool, headers: Mapping[str, str], seconds: float) -> list[float]:
    """Milliseconds of each call of one caller who has one in flight."""
    until, took = time.monotonic() + seconds, []
    while (began := time.monotonic()) < until:
        answer = await pool.request("POST", PATH, BODY, headers)
        if answer.status != 200:
            raise Unavailable(f"A live call was answered {answer.status}.")
        took.append((time.monotonic() - began) * 1000)
    return took


async def _upload(pool: ConnectionPool, headers: Mapping[str, str]) -> str:
    line = {"method": "POST", "url": PATH, "body": json.loads(BODY)}
    text = "".join(json.dumps({"custom_id": str(number), **line}) + "\n" for number in range(LINES))
    form = (
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="lines.jsonl"\r\n\r\n{text}\r\n'
        f"--{_BOUNDARY}--\r\n"
    )
    more = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
    answer = await pool.request("POST", "/v1/files", form.encode(), {**headers, **more})
    return str(json.loads(answer.body)["id"])


async def _begun(pool: ConnectionPool, headers: Mapping[str, str], file: str) -> str:
    """A batch some of whose lines are done."""
    body = {"input_file_id": file, "endpoint": PATH, "completion_window": "24h"}
    answer = await pool.request("POST", "/v1/batches", json.dumps(body).encode(), headers)
    batch = str(json.loads(answer.body)["id"])
    while not await _completed(pool, headers, batch):  # noqa: ASYNC110  a batch has no event to wait for
        await asyncio.sleep(_POLL_S)
    return batch


async def _completed(pool: ConnectionPool, headers: Mapping[str, str], batch: str) -> int:
    answer = await pool.request("GET", f"/v1/batches/{batch}", b"", headers)
    return int(json.loads(answer.body)["request_counts"]["completed"])


async def _cancelled(pool: ConnectionPool, headers: Mapping[str, str], batch: str) -> None:
    await pool.request("POST", f"/v1/batches/{batch}/cancel", b"", headers)
    status = ""
    while status != "cancelled":
        answer = await pool.request("GET", f"/v1/batches/{batch}", b"", headers)
        status = json.loads(answer.body)["status"]
        await asyncio.sleep(_POLL_S)
