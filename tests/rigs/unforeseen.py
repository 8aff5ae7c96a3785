"""``python -m tests.rigs.unforeseen``: the worker around a toy, with errors nobody foresaw.

Where a test asks for one: a file ``unforeseen-<place>`` in the folder of the interval log has that place fail once.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import workers.device.guardedrunner
from signalbox.jobs.commits import Commits
from workers.main import main
from workers.recovery.removal import JobRemoval
from workers.residency.versions import ResidentVersions
from workers.serving.committing import Committer

FOLDER = Path(os.environ.get("SIGNALBOX_WORKER_INTERVAL_LOG", ".")).parent


def failing(owner: type, place: str) -> None:
    """Have a coroutine function of a class fail where its file is, and take the file away."""
    act: Callable[..., Any] = getattr(owner, place)

    async def acted(*args: Any, **more: Any) -> Any:
        try:
            (FOLDER / f"unforeseen-{place}").unlink()
        except FileNotFoundError:
            return await act(*args, **more)
        raise ZeroDivisionError(place)

    setattr(owner, place, acted)


if __name__ == "__main__":
    failing(ResidentVersions, "keep_warm")
    failing(Commits, "success")
    failing(Committer, "examine")
    failing(JobRemoval, "_check")
    workers.device.guardedrunner.RUNNER = "tests.rigs.lightrunner"
    sys.exit(main())
