"""Jobs: why one waits, what failed and why, and a page that follows its job."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser import House, Window
from tests.e2e.day.clicks import WIDTHS, Task
from tests.rigs import models

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
SLOW = "slow_day"
FATAL = "fatal_day"
SHIFTS = """window.shifts = []; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    // The words of the state stand at the right end of their line: longer ones begin further left.
    const element = (node) => node instanceof Element ? node : node?.parentElement;
    const moved = entry.sources.filter((one) => !element(one.node)?.closest("[data-live=state]"));
    const names = moved.map((one) => `${one.node?.className} ${one.previousRect.y} to ${one.currentRect.y}`);
    if (moved.length && !entry.hadRecentInput) window.shifts.push([entry.value, ...names]);
  }
}).observe({ type: "layout-shift", buffered: true });"""

LONG_WORDS = """() => {
  const words = document.querySelector("[data-live=state] .clip"), before = words.textContent;
  words.textContent = "queued: no worker serves a-model-of-such-a-name yet";
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
    words.textContent = before;
    done();
  })));
}"""
"""Has the state say, for a moment, what it says where its only worker begins anew."""


@pytest.fixture(scope="module")
def key(window: Window) -> str:
    """A key, for a model that is busy for as long as its input says and one that an input below -100 kills."""
    page = window.tab()
    for name in (SLOW, FATAL):
        page.goto(window.url("/models/-/register"))
        window.confirm_if_asked(page)
        form = page.locator("form[action='/models/-/register']")
        form.get_by_label(re.compile("^Name")).fill(name)
        form.get_by_label(re.compile("Path|Folder")).fill(window.house.shown(models.half_plus_two(), name))
        form.get_by_role("button", name="Register").click()
        page.wait_for_url(window.url(f"/models/{name}"))
    page.goto(window.url("/keys/new"))
    window.confirm_if_asked(page)
    page.get_by_label(re.compile("^Name")).fill("day of jobs")
    page.get_by_role("button", name="Create key").click()
    text = page.get_by_test_id("api-key").inner_text()
    page.context.close()
    return text


def submit(house: House, key: str, model: str, x: float) -> str:
    """A job; the gateway learns of key and model by push."""
    deadline = time.monotonic() + 60
    while True:
        status, answer = house.call("/v1/jobs", key, {"model": model, "instances": [x]})
        if status == 202:
            return str(answer["id"])
        assert time.monotonic() < deadline, answer


def until_listed(page: Page, window: Window, words: str, job_id: str) -> None:
    """Until the list has it: rows are up to a second late."""
    deadline = time.monotonic() + 60
    while f"/jobs/{job_id}" not in page.request.get(window.url(f"/jobs?q={words}")).text():
        assert time.monotonic() < deadline, "the job is not listed"


@pytest.fixture
def line(house: House, key: str) -> Iterator[list[str]]:
    """A job that runs for a minute, and two behind it."""
    jobs = [submit(house, key, SLOW, 60.0) for _ in range(3)]
    yield jobs
    for job_id in reversed(jobs):
        house.call(f"/v1/jobs/{job_id}/cancel", key, {})


@pytest.mark.parametrize("width", WIDTHS)
def test_why_a_job_waits(window: Window, line: list[str], width: int) -> None:
    task = Task(window, "why a job waits", width=width)
    for job_id in line:
        until_listed(task.page, window, f"model:{SLOW}", job_id)
    row = task.page.locator("#queues tr", has=task.page.get_by_role("rowheader", name=SLOW))
    task.click(row.get_by_role("link", name=re.compile(r"\d (s|min)$")))
    now = task.page.locator(".job-now")
    expect(now).to_contain_text("Waiting")
    expect(now).to_contain_text(re.compile("a worker has it|next in line|jobs? ahead|behind a run"))
    expect(now).to_contain_text(re.compile("Starts in about|is not known|later than usual"))
    task.done(1)


@pytest.mark.parametrize("width", WIDTHS)
def test_what_failed_in_the_last_hour_by_error(window: Window, house: House, key: str, width: int) -> None:
    failed = submit(house, key, FATAL, -200.0)
    task = Task(window, "failed of the last hour by error", width=width)
    until_listed(task.page, window, "state:failed", failed)
    task.click(task.page.get_by_role("link", name="Failed in the last hour"))
    task.click(task.page.get_by_role("link", name="By error"))
    group = task.page.locator("tbody tr", has=task.page.locator(f"a[href='/jobs/{failed}']"))
    expect(group).to_contain_text(FATAL)
    task.done(2)


def test_a_group_of_errors_leads_to_its_jobs(window: Window, house: House, key: str) -> None:
    failed = submit(house, key, FATAL, -300.0)
    task = Task(window, "jobs with one error")
    until_listed(task.page, window, "state:failed", failed)
    task.page.goto(window.url("/jobs?group=error"))
    group = task.page.locator("tbody tr", has=task.page.locator(f"a[href='/jobs/{failed}']"))
    task.click(group.locator(".row-link"))
    expect(task.page.locator(f"a[href='/jobs/{failed}']")).to_be_visible()
    task.done(1)
    page = window.tab()
    page.goto(window.url(f"/jobs/{failed}"))
    expect(page.get_by_role("link", name="It is kept as a dead letter")).to_be_visible()
    page.context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_a_job_follows_it_to_its_end_and_moves_nothing(
    window: Window, house: House, key: str, line: list[str], width: int
) -> None:
    page = window.tab(width=width)
    page.add_init_script(SHIFTS)
    until_listed(page, window, f"model:{SLOW}", line[1])
    page.goto(window.url(f"/jobs/{line[1]}"))
    now = page.locator(".job-now")
    expect(now).to_contain_text("Waiting")
    page.evaluate("window.isTheSame = true")
    page.evaluate(LONG_WORDS)
    house.call(f"/v1/jobs/{line[0]}/cancel", key, {})
    expect(now).to_contain_text("Running, attempt 1")
    expect(page.locator("[data-live=timeline]")).to_contain_text("Attempt 1 on")
    house.call(f"/v1/jobs/{line[1]}/cancel", key, {})
    expect(page.locator("[data-live=state] .state")).to_have_attribute("data-state", "cancelled")
    expect(now).to_contain_text("ancelled")
    expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)
    expect(page.locator("#link")).to_have_text("ended")
    assert page.evaluate("window.isTheSame"), "without a reload"
    shifts = page.evaluate("window.shifts")
    assert sum(value for value, *_ in shifts) <= 0.01, shifts
    page.context.close()


def test_a_job_takes_two_lines_on_a_phone_and_nothing_scrolls_sideways(window: Window, house: House, key: str) -> None:
    failed = submit(house, key, FATAL, -200.0)
    for width in (360, 390):
        page = window.tab(width=width)
        until_listed(page, window, "state:failed", failed)
        for path in ("/jobs", "/jobs?state=failed", "/jobs?group=error", f"/jobs/{failed}"):
            page.goto(window.url(path))
            page.wait_for_load_state("networkidle")
            found: dict[str, Any] = page.evaluate("""() => ({
                page: document.documentElement.scrollWidth,
                tables: [...document.querySelectorAll(".table-wrap")].map((one) => one.scrollWidth - one.clientWidth),
                high: [...document.querySelectorAll(".table-jobs tbody tr")]
                  .filter((one) => one.offsetHeight > 76).map((one) => one.innerText),
            })""")
            assert found["page"] <= width, path
            assert not any(found["tables"]), path
            assert not found["high"], path
        page.context.close()
