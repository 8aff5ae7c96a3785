"""Every program of ``make up`` serves its metrics where no other does."""

import asyncio
import sys
from pathlib import Path

import pytest

from signalbox.ops.up.child import Spec
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack

SAYS_ITS_PORT = "import os, time; print(os.environ['SIGNALBOX_METRICS_PORT'], flush=True); time.sleep(600)"
PROGRAMS = ("gateway", "console", "controller", "projector", "outbound", "worker-1", "worker-2")


@pytest.fixture
def stack(tmp_path: Path) -> UpStack:
    options = UpOptions(front_port=0, console_port=0, nats_port=0)
    return UpStack(options, DataDir(tmp_path), lambda _: None)


async def reported(stack: UpStack, name: str) -> str:
    """The port one program is given, as it says itself."""
    log = stack.data.path / "logs" / f"{name}.log"

    async def has_spoken() -> bool:
        return log.exists() and log.read_text().endswith("\n")

    env = {**stack.env("worker")}
    await stack.start(Spec(name, (sys.executable, "-c", SAYS_ITS_PORT), env, has_spoken))
    return log.read_text().strip()


async def test_programs_that_inherit_one_port_are_given_one_each(
    stack: UpStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNALBOX_METRICS_PORT", "9100")
    try:
        ports = await asyncio.gather(*(reported(stack, name) for name in PROGRAMS))
        assert ports == ["9100", "9101", "9102", "9103", "9104", "9105", "9106"]
        assert [stack.metrics()[name] for name in PROGRAMS] == [f"http://127.0.0.1:{port}/metrics" for port in ports]
    finally:
        await stack.stop()


async def test_without_a_port_none_is_given(stack: UpStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_METRICS_PORT", "0")
    try:
        assert await reported(stack, "console") == "0"
        assert stack.metrics() == {}
    finally:
        await stack.stop()
