"""Playing a script on a rig: on the model in virtual time, or on real servers, where the outcome is told later."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from verification.simulation.cases.rig import Case, CaseRig
from verification.simulation.loop import running

T = TypeVar("T")
Script = Callable[[CaseRig], Awaitable[T]]


def in_virtual_time(make: Callable[[], CaseRig], script: Script[T], seed: int) -> T:
    """What a script returns. make: the rig, once the loop runs."""

    async def play() -> T:
        rig = make()
        try:
            return await script(rig)
        finally:
            await rig.close()

    with running(seed) as loop:
        return loop.run_until_complete(play())


async def outcome(rig: CaseRig, script: Script[T], limit_s: float) -> T | Exception:
    """What a script returned, or what it raised: its own test reports it."""
    try:
        async with asyncio.timeout(limit_s):
            return await script(rig)
    except Exception as error:  # noqa: BLE001  see above
        return error
    except pytest.fail.Exception as failed:  # what pytest.raises raises, and is no Exception
        return AssertionError(str(failed)).with_traceback(failed.__traceback__)
    finally:
        await rig.close()


def selected(request: pytest.FixtureRequest, test: str, numbered: Sequence[tuple[str, Case]]) -> list[tuple[str, Case]]:
    """The cases whose ``test`` this run of pytest has selected."""
    chosen = {item.name for item in request.session.items}
    return [(id_, each) for id_, each in numbered if f"{test}[{each.name}]" in chosen]
