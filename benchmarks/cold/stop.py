"""``python -m benchmarks.cold.stop FOLDER``: how long a load of a SavedModel stops the runner's other thread at most.

The worker's own engine loads it in a thread, as it does beside runs, a few times. The main thread, which would run
other models, asks for the interpreter all the time meanwhile. Prints the longest waits: without a load, and of each.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from workers.runner.engine import TensorFlowEngine

LOADS: Final = 7
TICK_S: Final = 0.0005
ALONE_S: Final = 1.0


def main() -> None:
    """Print them as one line of JSON, in ms, sorted."""
    engine = TensorFlowEngine("cpu", intra_threads=1, inter_threads=1)

    def load() -> None:
        engine.load("stop", 1, sys.argv[1], is_warm=True, digest="")

    engine.load("first", 1, sys.argv[1], is_warm=True, digest="")  # what TensorFlow imports only then
    found = []
    for _ in range(LOADS):
        found.append(_longest_s(load))
        engine.unload("stop", 1)
    print(json.dumps([round(1e3 * each, 1) for each in (_longest_s(lambda: time.sleep(ALONE_S)), *sorted(found))]))


def _longest_s(act: Callable[[], object]) -> float:
    """The longest that this thread did not go on for what another does: less what both waited for a processor."""
    thread = threading.Thread(target=act)
    thread.start()
    clock = time.pthread_getcpuclockid(thread.ident or 0)
    longest_s, before = 0.0, (0.0, 0.0)
    with suppress(OSError):  # the thread has ended, and its clock with it
        while True:
            time.sleep(TICK_S)
            now = time.perf_counter() - _delayed_s(), time.clock_gettime(clock)
            longest_s = max(longest_s, min(each - last for each, last in zip(now, before, strict=True)))
            before = now
    thread.join()
    return longest_s


def _delayed_s() -> float:
    """How long this thread has waited for a processor."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


if __name__ == "__main__":
    main()
