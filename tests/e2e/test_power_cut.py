"""Power is cut under load, on real file systems: what was acknowledged is there; a disk that lied harms no device.

The power of all three nodes of a cluster at once is cut by hand (``python -m verification.chaos rack``): nats-server
may leave a stream without a leader after it, see docs/chaos.md.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signalbox.bus.client import Bus
from signalbox.ops import natsserver
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer
from verification.chaos.environment.disk import Disk, reason_against
from verification.chaos.evidence.history import ENDED, History, accepted
from verification.chaos.faults import power
from verification.chaos.laws import checks

LIMIT_S = 300
"""Far above the fifteen to thirty seconds one takes: a busy machine is no fault of the stack's."""
pytestmark = pytest.mark.timeout(LIMIT_S + 60)
ROOT = Path(__file__).parents[2]
WRITES = 300


@pytest.fixture(scope="module")
def disks() -> None:
    if why := reason_against():
        pytest.skip(why)


@pytest.fixture
def disk(tmp_path: Path, disks: None) -> Iterator[Disk]:
    with Disk(tmp_path / "disk") as made:
        yield made


def struck(folder: Path, scenario: str, rounds: int) -> History:
    """A scenario in a mount namespace of its own, which takes its disks with it even if it is killed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            sys.executable,
            "-m",
            "verification.chaos",
            scenario,
            "--rounds",
            str(rounds),
            "--seed",
            "1",
            "--folder",
            str(folder),
        ],
        cwd=ROOT,
        env=env,
        timeout=LIMIT_S,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    print(done.stdout[-6000:])
    assert done.returncode == 0, done.stdout[-6000:]
    return History.of(folder / "history")


def begun(h: History, kind: str) -> list[dict[str, Any]]:
    return [fault for fault in h.faults if (fault["event"], fault.get("kind")) == ("begin", kind)]


def interrupted(h: History, kind: str) -> set[str]:
    """Jobs that were promised and had not ended when the power went."""
    ended = {entry["job"]: entry["at"] for entry in h.records if entry["state"] in ENDED}
    return {
        job
        for job, answer in accepted(h.ledger).items()
        for cut in begun(h, kind)
        if answer["at"] < cut["at"] < ended.get(job, cut["at"] + 1)
    }


@pytest.mark.slow
@pytest.mark.usefixtures("disks")
def test_jobs_outlive_the_power_of_their_only_node(tmp_path: Path) -> None:
    h = struck(tmp_path, "power", 4)
    assert len(begun(h, "power cut")) == 4
    assert interrupted(h, "power cut")


@pytest.mark.slow
@pytest.mark.usefixtures("disks")
def test_a_disk_that_lied_costs_the_jobs_it_forgot_and_nothing_else(tmp_path: Path) -> None:
    h = struck(tmp_path, "lie", 1)
    (gap,) = (fault for fault in h.faults if fault["event"] == "forgot")
    promised = accepted(h.ledger)
    known = {entry["job"] for entry in h.final if "job" in entry}
    lost = [answer["at"] for job, answer in promised.items() if job not in known]
    assert lost, "it did not lie"
    assert gap["since"] <= min(lost)
    assert any(answer["at"] < gap["since"] for answer in promised.values())
    assert any(answer["asked"] > gap["reused_until"] for answer in promised.values())
    # A device changed hands meanwhile, so that the leases' sequences fell behind a token that had been let in.
    stays = [line for line in h.intervals if line.kind == "in"]
    before = [line.token for line in stays if line.t_in < gap["until"]]
    after = [line.token for line in stays if line.t_in > gap["until"]]
    assert min(after) > max(before)


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["always", '"2m"'])
async def test_only_a_server_that_syncs_always_keeps_what_it_acknowledged(
    disk: Disk, sync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so the rig can find a broken promise: the disk forgets what was not synced."""
    rendered = natsserver.render
    monkeypatch.setattr(
        natsserver,
        "render",
        lambda *a, **k: rendered(*a, **k).replace("sync_interval: always", f"sync_interval: {sync}"),
    )
    async with NatsServer(disk.folder / "nats") as server:
        bus = await Bus.connect(Wire(nats_url=server.url), role="admin")
        try:
            stream = {"name": "PAPER", "subjects": ["paper"], "storage": "file"}
            await bus.request_json("$JS.API.STREAM.CREATE.PAPER", stream)
            await asyncio.to_thread(subprocess.run, ("sync", "--file-system", str(disk.folder)), check=True)
            acknowledged = [await bus.write("paper", b"word") for _ in range(WRITES)]
            await power.blackout([server], [disk])
            await asyncio.to_thread(disk.put_back)
            await server.start()
            info = await patiently(bus, "$JS.API.STREAM.INFO.PAPER")
        finally:
            await bus.close()
        await server.stop()  # before its disk goes
    assert acknowledged[-1] == WRITES
    assert (info["state"]["messages"] == WRITES) is (sync == "always")


async def patiently(bus: Bus, subject: str) -> dict[str, Any]:
    """An answer, once the connection is back."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await bus.request_json(subject)
            except SignalboxError:
                await asyncio.sleep(0.05)


# -- the judge, where a disk lied --------------------------------------------------------------------


def answer(job: str, at: float, asked: float, **more: Any) -> dict[str, Any]:
    base = {"event": "answer", "client": "ann", "op": "submit", "status": 202, "expect": 3.0}
    return {**base, "job": job, "at": at, "asked": asked, **more}


GAP = {
    "at": 30.0,
    "event": "forgot",
    "kind": "lying disk",
    "target": "all",
    "since": 10.0,
    "until": 20.0,
    "reused_until": 25.0,
}


@pytest.mark.parametrize(
    ("at", "asked", "is_excused"),
    [(9.9, 9.8, False), (10.1, 9.9, True), (20.5, 19.9, True), (25.5, 24.0, True), (26.0, 25.1, False)],
)
def test_only_jobs_of_the_forgotten_time_may_be_lost(at: float, asked: float, is_excused: bool) -> None:
    look = {**answer("", 28.0, 27.9), "op": "look", "status": 404, "about": "j"}
    h = History(ledger=[answer("j", at, asked), look], faults=[GAP])
    assert (checks.check(h) == []) is is_excused


def test_an_end_that_was_forgotten_may_come_out_otherwise_and_no_other() -> None:
    final = [{"at": 40.0, "job": "j", "model": "half", "seq": 9, "state": "succeeded", "y": 3.0, "attempt": 1}]
    reported = answer("j", 15.0, 14.9, event="seen", state="cancelled", y=None)
    first = answer("j", 5.0, 4.9)
    assert checks.check(History(ledger=[first, reported], final=final, faults=[GAP])) == []
    earlier = {**reported, "at": 9.0, "asked": 8.9}
    later = {**reported, "at": 29.0, "asked": 28.9}
    for seen in (earlier, later):
        found = checks.check(History(ledger=[first, seen], final=final, faults=[GAP]))
        assert [violation.law for violation in found] == ["double terminal"]


def test_a_forgotten_job_is_still_no_other_accounts() -> None:
    spied = {"at": 15.0, "event": "foreign", "client": "bob", "job": "j", "status": 200}
    h = History(ledger=[answer("j", 12.0, 11.9), spied], faults=[GAP])
    assert [violation.law for violation in checks.check(h)] == ["foreign reads"]
