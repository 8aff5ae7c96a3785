"""Workers and devices, a pause, and a role: each with its clicks, wide and on a phone."""

import re
import secrets
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser import Window
from tests.e2e.day.clicks import WIDTHS, Task
from tests.rigs import models

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
MODEL: Final = f"day_workers_{secrets.token_hex(3)}"
NINA: Final = f"nina-{secrets.token_hex(3)}"


@pytest.fixture(scope="module")
def model(window: Window) -> str:
    """A model of this module's own, in a device's memory."""
    page = window.tab()
    page.goto(window.url("/models/-/register"))
    window.confirm_if_asked(page)
    form = page.locator("form[action='/models/-/register']")
    form.get_by_label(re.compile("^Name")).fill(MODEL)
    form.get_by_label("Path").fill(window.house.shown(models.half_plus_two(), MODEL))
    form.get_by_role("button", name="Register").click()
    page.wait_for_url(window.url(f"/models/{MODEL}"))
    page.get_by_text("Load or pin a version").press("Enter")
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.locator("#memory + .state")).to_have_text("pinned")
    page.context.close()
    return MODEL


def _say_why(page: Page, reason: str) -> None:
    """Type the reason that the dialog asks for; its harmless button has the focus."""
    expect(page.locator("#confirm-keep")).to_be_focused()
    page.get_by_label("Reason").fill(reason)


DRAINED: Final = "async () => (await (await fetch(location.href)).text()).includes('may be stopped now')"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_worker_is_found(window: Window, width: int) -> None:
    task = Task(window, "a worker's page", width=width)
    task.click(task.page.locator("#workers").get_by_role("link", name="worker-1"))
    task.page.get_by_role("heading", level=1).wait_for()
    task.done(1)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_worker_is_drained_and_resumed_and_both_are_said(window: Window, width: int) -> None:
    task = Task(window, "drain a worker", width=width)
    page = task.page
    task.click(page.locator("#workers").get_by_role("link", name="worker-2"))
    task.click(page.get_by_role("button", name="Drain"))
    _say_why(page, "a new driver")
    task.click(page.locator("#confirm-yes"))
    expect(page.locator("main")).to_contain_text("a new driver")
    page.wait_for_function(DRAINED, polling=200)  # it hands over within a second
    page.wait_for_load_state()  # one that is loading cannot be reloaded
    page.reload()
    expect(page.locator("main")).to_contain_text(re.compile("Drained, may be stopped now.*Asked by admin"))
    task.done(4)
    task = Task(window, "resume a worker", width=width)
    page = task.page
    task.click(page.locator("#workers").get_by_role("link", name="worker-2"))
    task.click(page.get_by_role("button", name="Resume"))
    _say_why(page, "done")
    task.click(page.locator("#confirm-yes"))
    expect(page.get_by_role("region", name="What is asked of it")).to_contain_text("take part")
    task.done(4)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_drain_is_taken_back_by_the_message_after_it(window: Window, width: int) -> None:
    task = Task(window, "undo a drain", width=width)
    page = task.page
    task.click(page.locator("#workers").get_by_role("link", name="worker-2"))
    task.click(page.get_by_role("button", name="Drain"))
    task.click(page.locator("#confirm-yes"))
    task.click(page.locator(".messages").get_by_role("button", name="Undo"))
    expect(page.locator(".messages")).to_contain_text("worker-2 is as it was before")
    expect(page.get_by_role("region", name="What is asked of it")).to_contain_text("take part")
    task.done(4)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_devices_memory_and_what_leaves_next_are_two_clicks_away(window: Window, model: str, width: int) -> None:
    task = Task(window, "a device's memory and what leaves next", width=width)
    page = task.page
    task.click(page.locator(".lane-name h3 a").first)
    about = page.get_by_role("region", name="Device", exact=True)
    expect(about).to_contain_text(re.compile(r"B of \d"))
    while not page.get_by_role("region", name="Models on").get_by_role("link", name=model).count():
        page.reload()  # a heartbeat of its holder tells it
    expect(about).to_contain_text("leaves")
    expect(page.get_by_role("region", name="Lease log").first).to_contain_text("holds it")
    task.done(2)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_model_is_paused_with_a_reason_and_resumed(window: Window, model: str, width: int) -> None:
    for name, said in (("Pause queue", "The queue is paused"), ("Resume queue", "is resumed")):
        task = Task(window, name, width=width)
        page = task.page
        words = page.locator("#queues-filter")
        if words.count():  # the board of many models: idle ones are folded, and found by typing
            words.fill(model)
        task.click(page.locator("#queues").get_by_role("link", name=model, exact=True))
        task.click(page.get_by_role("button", name=name))
        _say_why(page, "a trial")
        task.click(page.locator("#confirm-yes"))
        expect(page.locator("main")).to_contain_text(said)
        task.done(3)


@pytest.mark.parametrize("width", WIDTHS)
def test_an_operators_role_is_changed_and_taken_back(window: Window, width: int) -> None:
    page, name = window.tab(), f"{NINA}-{width}"
    page.goto(window.url("/settings/users/new"))
    window.confirm_if_asked(page)
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill("quite another long password")
    page.get_by_role("button", name="Create").click()
    page.wait_for_url(window.url("/settings/users"))
    page.context.close()
    task = Task(window, "change a role", width=width)
    page = task.page
    task.click(page.get_by_role("navigation", name="Main").get_by_role("link", name="Settings"))
    task.click(page.get_by_role("link", name="Operators"))
    row = page.get_by_role("row").filter(has_text=name)
    row.get_by_label(f"Role of {name}").select_option("operator")
    task.click(row.get_by_role("button", name="Set"))
    expect(page.locator(".messages")).to_contain_text("role is changed")
    task.click(page.locator(".messages").get_by_role("button", name="Undo"))
    expect(row.get_by_label(f"Role of {name}")).to_have_value("viewer")
    task.done(4)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_form_that_is_refused_keeps_what_was_typed_beside_the_reason(window: Window, model: str, width: int) -> None:
    page = window.tab(width=width)
    page.goto(window.url(f"/models/{model}"))
    replicas = page.get_by_label("Replicas", exact=True)
    form = page.locator("form", has=replicas)
    replicas.evaluate("(input) => input.removeAttribute('max')")  # what the browser would refuse by itself
    replicas.fill("5000")
    form.get_by_role("button", name="Set").click()
    expect(form.locator(".errors")).to_contain_text("1000")
    expect(replicas).to_have_value("5000")
    assert page.url == window.url(f"/models/{model}"), "so that a reload asks for nothing again"
    replicas.fill("2")
    form.get_by_role("button", name="Set").click()
    expect(page.locator(".messages")).to_contain_text("Saved")
    page.locator(".messages").get_by_role("button", name="Undo").click()
    expect(page.locator(".messages")).to_contain_text("as it was before")
    page.context.close()
