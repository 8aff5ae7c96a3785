"""Acts on jobs: a hundred that wait are cancelled, and one that was given up runs again."""

import json
import secrets
import time
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.e2e.browser import House, Window
from tests.e2e.day.clicks import WIDTHS, Task
from tests.rigs import models

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
MODEL: Final = f"slow_{secrets.token_hex(3)}"
WAITING: Final = 100
START_S: Final = 60.0


def rest(window: Window, method: str, path: str, body: dict[str, Any]) -> Any:
    """A call of the console's API by the operator who is logged in."""
    page = window.tab()
    page.goto(window.url("/confirm?next=/settings"))
    window.confirm_if_asked(page)
    token = next(one["value"] for one in page.context.cookies() if "csrf" in one["name"])
    headers = {"X-CSRFToken": token, "Content-Type": "application/json"}
    answer = page.request.fetch(window.url(f"/api/{path}"), method=method, data=json.dumps(body), headers=headers)
    assert answer.ok, answer.text()
    said = answer.json()
    page.context.close()
    return said


@pytest.fixture(scope="module")
def key(window: Window, house: House) -> str:
    """A key for a model whose queue the tests pause, and that gives a job up that runs for more than a second."""
    path = house.shown(models.slow(), MODEL)
    rest(window, "post", "models", {"name": MODEL, "path": path})
    rest(window, "patch", f"models/{MODEL}", {"timeout_s": 1, "max_delivery": 1})
    made: str = rest(window, "post", "keys", {"name": MODEL, "models": [MODEL]})["key"]
    deadline = time.monotonic() + START_S
    while house.call(f"/v1/models/{MODEL}:predict", made, {"instances": [0.01]})[0] != 200:
        assert time.monotonic() < deadline, "the model does not answer"
    return made


def send(house: House, key: str, values: list[float]) -> list[str]:
    """Ids of new jobs, one for each value."""
    jobs = [{"model": MODEL, "instances": [value]} for value in values]
    status, answer = house.call("/v1/jobs", key, {"jobs": jobs})
    assert status == 200, answer
    return [one["id"] for one in answer["jobs"]]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_hundred_waiting_jobs_are_cancelled(window: Window, house: House, key: str, width: int) -> None:
    rest(window, "put", f"models/{MODEL}/pause", {"on": True, "reason": "for the test"})
    mine = send(house, key, [0.01] * WAITING)
    task = Task(window, f"cancel {WAITING} waiting jobs", width=width)
    page = task.page
    task.click(page.get_by_role("link", name="Jobs", exact=True).first)
    page.get_by_label("Filter", exact=True).fill(f"model:{MODEL}")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=model**")
    task.click(page.get_by_role("link", name="queued").first)
    expect(page.locator('label[for="choose-all"]')).to_have_text(f"All {WAITING} that match")
    task.click(page.get_by_label(f"All {WAITING} that match"))
    task.click(page.get_by_role("button", name="Cancel…"))
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Cancel {WAITING} jobs")
    later = send(house, key, [0.01])
    task.click(page.get_by_role("button", name=f"Cancel {WAITING} jobs"))
    expect(page.locator("#progress:not([data-open])")).to_contain_text(f"{WAITING} done · 0 refused")
    task.done(5)
    assert {house.call(f"/v1/jobs/{one}", key)[1]["state"] for one in mine} == {"cancelled"}
    assert house.call(f"/v1/jobs/{later[0]}", key)[1]["state"] == "queued", "it came later"
    rest(window, "put", f"models/{MODEL}/pause", {"on": False})
    _until_ended(house, key, later[0])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_job_that_was_given_up_runs_again(window: Window, house: House, key: str, width: int) -> None:
    task = Task(window, "retry a failed job", width=width)
    page = task.page
    expect(page.locator("#link")).to_have_text("live")
    (lost,) = send(house, key, [20.0])
    assert _until_ended(house, key, lost) == "failed"
    task.click(page.locator(f"#ticker a[href='/jobs/{lost}']").first)
    task.click(page.get_by_role("button", name="Retry"))
    expect(page.locator("main")).to_contain_text("again, with the same input")
    assert lost not in page.url
    task.done(2)


def _until_ended(house: House, key: str, job: str) -> str:
    deadline = time.monotonic() + START_S
    while (state := str(house.call(f"/v1/jobs/{job}", key)[1]["state"])) in {"queued", "running"}:
        assert time.monotonic() < deadline, state
        time.sleep(0.1)
    return state
