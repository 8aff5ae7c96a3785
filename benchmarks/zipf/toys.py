"""Thousands of models with toy runners: the share of calls whose model is in memory, and the memory of programs.

NATS, the front and three workers, each on a device of its own with room for a hundred models, which loads nothing
ahead. A call whose model had to be loaded is a miss.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.queue.toys import ToyWorker, register, standing
from benchmarks.rig.bed import first_answer, mint
from benchmarks.zipf import policy
from benchmarks.zipf.calls import Outcome, line, make
from signalbox.ops.up.stack import UpStack
from signalbox.wire.messages import decode
from signalbox.wire.modeldocs import Model, Signature, TensorSpec
from signalbox.wire.names import Bucket, key, token
from signalbox.wire.placement import homes_of
from signalbox.wire.workerdocs import Worker

WORKERS: Final = 3
ROOM: Final = 100
MODEL_BYTES: Final = 2**20
HIT_POINTS: Final = 5.0
GROWTH_MB: Final = 20.0
_ROWS: Final = TensorSpec(dtype="float32", shape=(-1,))


async def measure(folder: Path, *, models: int, requests: int) -> list[str]:
    """Print figures as they come. Returns the lines of the table."""
    print(f"\n{models:,} toys, {WORKERS} workers with room for {ROOM} each, {requests:,} calls", flush=True)
    names = [f"m{number:05}" for number in range(models)]
    called = policy.called(names, requests)
    async with standing(folder) as stack:
        (stack.data.path / "size").write_text(str(MODEL_BYTES))  # what each toy takes
        await stack.start_edge()
        settings = {
            "SIGNALBOX_WORKER_IS_WARM": "false",
            "SIGNALBOX_WORKER_MEMORY_BUDGET_BYTES": str(ROOM * MODEL_BYTES),
        }
        for number in range(WORKERS):
            await ToyWorker.started(stack, f"worker-{number}", f"cpu:{number}", settings)
        await register(
            stack, names, signatures={"serving_default": Signature(inputs={"x": _ROWS}, outputs={"y": _ROWS})}
        )
        api_key = await mint(stack)
        await first_answer(stack.front_url, api_key, names[-1])
        offline = policy.hits(called, await _homes(stack, names), ROOM)
        outcome = await make(stack, api_key, called)
    return [f"{models:,} toys, {requests:,} calls", *_promises(outcome, offline)]


async def _homes(stack: UpStack, names: Sequence[str]) -> dict[str, str]:
    """The device of each model, as workers and gateways compute it."""
    found = [
        await stack.bus.leader_get(Bucket.WORKERS.stream, key(Bucket.WORKERS, token(f"worker-{n}")))
        for n in range(WORKERS)
    ]
    workers = [decode(Worker, each.data) for each in found if each is not None]
    return {name: homes_of(Model(name=name), workers)[0] for name in names}


def _promises(outcome: Outcome, offline: Sequence[bool]) -> list[str]:
    measured, computed = (100 * share for share in (1 - outcome.loads / len(offline), sum(offline) / len(offline)))
    early, late = outcome.resident_mb[0], outcome.resident_mb[-1]
    growth = {name: late[name] - early[name] for name in early if name.startswith(("worker", "gateway"))}
    return [
        outcome.errors(),
        line(
            "hits, per cent",
            f"{measured:.1f}",
            f"{computed:.1f} offline, +-{HIT_POINTS:.0f}",
            is_met=abs(measured - computed) <= HIT_POINTS,
        ),
        *(
            line(
                f"MB more than after a tenth: {name}",
                f"{more:+.1f}",
                f"at most {GROWTH_MB:.0f}",
                is_met=more <= GROWTH_MB,
            )
            for name, more in growth.items()
        ),
    ]
