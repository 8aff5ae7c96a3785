"""What a job was sent and gave, and dead letters."""

import asyncio
import re
import secrets
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from signalbox.bus.client import Bus
from signalbox.jobs import deadletters, life
from signalbox.jobs.message import submit
from signalbox.jobs.records import Records
from signalbox.program.settings import Wire
from signalbox.wire import jobids, tensors
from signalbox.wire.messages import DeadLetter, ErrorInfo, Job
from signalbox.wire.tensors import Tensor
from tests.e2e.browser import House, Window
from tests.e2e.day.clicks import WIDTHS, Task
from tests.e2e.pagefaults import judged
from tests.rigs import models
from tests.rigs.submit import floats
from verification.fuzz import payloads

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
MARK = secrets.token_hex(3)
MODEL = f"half_{MARK}"
LOOKS = [(360, "light"), (360, "dark"), (768, "dark"), (1440, "light")]
SEEDS = sorted(Path(payloads.SEEDS).iterdir())
EVERYTHING = tensors.encode(
    [
        *(tensor for seed in SEEDS if seed.name != "json" for tensor in tensors.decode(seed.read_bytes())),
        Tensor("wide", "int64", (9, 9), b"".join((10**17 + n).to_bytes(8, "little") for n in range(81))),
    ]
)
"""Numbers, texts, images and JSON in one input."""


class Nats:
    """Puts into a stack's NATS what a gateway and a worker would."""

    def __init__(self, house: House) -> None:
        secret = house.data / "secrets" / "nats_admin"
        if not secret.exists():
            pytest.skip("NATS of this stack is not to be reached from here")
        self._wire = Wire(nats_url=house.facts["nats"], nats_user="admin", nats_password=secret.read_text().strip())

    def waiting(self, model: str, frame: bytes = b"") -> Job:
        """A job that no worker takes."""
        job = self._job(model)
        self._do(lambda bus: submit(bus, job, frame or floats(1.5)))
        return job

    def succeeded(self, model: str) -> Job:
        """One that ended with an output."""
        job = self._job(model)
        record = life.claimed(job, None, worker="w", gpu="g", token=1, now=time.time())
        record = life.succeeded(record, now=time.time(), batch=1, size_bytes=8)
        self._do(lambda bus: Records(bus).write(record, floats(2.5, name="y"), expect=0))
        return job

    def dead(self, model: str, why: str) -> Job:
        """One that was given up."""
        job = self._job(model)
        notice = DeadLetter(error=ErrorInfo(code="model_error", message=why), attempt=3)
        self._do(lambda bus: deadletters.keep(bus, job, floats(1.0), notice))
        return job

    def _job(self, model: str) -> Job:
        now = time.time()
        return Job(
            id=jobids.new_job_id(now, uuid.uuid4().int),
            model=model,
            version=1,
            signature="serving_default",
            account_id="shop",
            created_at=now,
            deadline_at=now + 600,
        )

    def _do(self, act: Any) -> None:
        async def run() -> None:
            async with await Bus.connect(self._wire, role="admin") as bus:
                await act(bus)

        # Not in this thread: the browser's loop is running in it.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(run())).result()


@pytest.fixture(scope="module")
def nats(house: House) -> Nats:
    return Nats(house)


@pytest.fixture(scope="module")
def served(window: Window) -> str:
    """A model that a worker serves."""
    page = window.tab()
    page.goto(window.url("/models/-/register"))
    window.confirm_if_asked(page)
    form = page.locator("form[action='/models/-/register']")
    form.get_by_label(re.compile("^Name")).fill(MODEL)
    form.get_by_label(re.compile("Path|Folder")).fill(window.house.shown(models.half_plus_two(), MODEL))
    form.get_by_role("button", name="Register").click()
    page.wait_for_url(window.url(f"/models/{MODEL}"))
    page.context.close()
    return MODEL


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("part", ["Input", "Output"])
def test_what_a_job_was_sent_and_gave_is_seen(window: Window, nats: Nats, part: str, width: int) -> None:
    model = f"nobody-{secrets.token_hex(3)}"
    task = Task(window, f"{part.lower()} of a job", width=width)
    job = nats.waiting(model) if part == "Input" else nats.succeeded(model)
    task.click(task.page.locator(f"#ticker a[href='/jobs/{job.id}']").first)
    task.click(task.page.get_by_role("link", name=part, exact=True))
    expect(task.page.get_by_role("heading", level=1)).to_contain_text(f"{part} of job")
    expect(task.page.locator(".tensor .stat-value").first).to_have_text("1.5" if part == "Input" else "2.5")
    task.done(2)


@pytest.mark.parametrize("width", WIDTHS)
def test_dead_letters_of_one_error_are_redriven(window: Window, nats: Nats, served: str, width: int) -> None:
    for number in range(3):
        nats.dead(served, f"No such row: {number} at {width}")
    task = Task(window, "redrive", width=width)
    task.click(task.page.locator("a[href='/jobs/-/dead-letters']").first)
    row = task.page.locator("tr", has_text=served).filter(has_text="No such row")
    task.click(row.first.get_by_role("button", name="Redrive"))
    task.click(task.page.locator("#confirm-yes"))
    expect(task.page.locator(".card-head .num")).to_contain_text("3 done")
    task.done(3)


def test_what_jobs_were_sent_and_dead_letters_fit_and_are_accessible(window: Window, nats: Nats, served: str) -> None:
    letter, job = nats.dead(served, "Looked at."), nats.waiting("nobody-looks", EVERYTHING)
    page = window.tab()
    found: list[str] = []
    letters = "/jobs/-/dead-letters"
    for path in (f"/jobs/{job.id}/input", f"/jobs/{job.id}/output", letters, f"{letters}/{letter.id}"):
        page.goto(window.url(path))
        window.confirm_if_asked(page)
        page.wait_for_load_state("networkidle")
        found += judged(page, path, LOOKS)
    page.goto(window.url(letters))
    page.locator("a.row-link").first.click()
    found += judged(page, "a group", LOOKS)
    assert found == []
    page.context.close()


def test_a_letter_is_looked_at_redriven_and_discarded(window: Window, nats: Nats, served: str) -> None:
    letter = nats.dead(served, "Something else entirely.")
    page = window.tab()
    page.goto(window.url(f"/jobs/-/dead-letters/{letter.id}"))
    expect(page.get_by_text("Something else entirely.")).to_be_visible()
    page.get_by_role("button", name="Redrive").click()
    page.get_by_label("Reason").fill("mended")
    page.locator("#confirm-yes").click()
    expect(page.get_by_text("Queued again, as job")).to_be_visible()
    page.goto(window.url(f"/jobs/-/dead-letters/{letter.id}"))
    expect(page.get_by_role("button", name="Redrive once more")).to_be_visible()
    page.get_by_role("button", name="Discard").click()
    page.locator("#confirm-yes").click()
    expect(page.locator(".messages")).to_contain_text("discarded")
    page.context.close()
