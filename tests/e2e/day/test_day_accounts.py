"""Keys and accounts."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.browser import House, Window
from tests.e2e.day.clicks import WIDTHS, Task
from tests.rigs import models

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
MODEL = "half-of-accounts"


def place(page: Page, name: str) -> Locator:
    """An entry of the rail."""
    return page.get_by_role("navigation", name="Main").get_by_role("link", name=name)


def make(window: Window, name: str) -> str:
    """A key's text; its account is named like it."""
    page = window.tab()
    page.goto(window.url("/keys/new"))
    window.confirm_if_asked(page)
    page.get_by_label(re.compile("^Name")).fill(name)
    page.get_by_role("button", name="Create key").click()
    text = page.get_by_test_id("api-key").inner_text()
    page.context.close()
    return text


@pytest.fixture(scope="module")
def served(window: Window) -> str:
    """The name of a model that can be called."""
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
def test_a_key_is_made(window: Window, width: int) -> None:
    task = Task(window, "a key is made", width=width)
    task.click(place(task.page, "API keys"))
    task.click(task.page.get_by_role("link", name="Create key").first)
    task.page.get_by_label(re.compile("^Name")).fill(f"made at {width}")
    task.click(task.page.get_by_role("button", name="Create key"))
    assert task.page.get_by_test_id("api-key").inner_text().startswith("sbx_")
    task.click(task.page.get_by_role("button", name="Copy").first)
    task.click(task.page.get_by_role("link", name="I have copied it"))
    expect(task.page.get_by_role("heading", level=1)).to_have_text(f"made at {width}")
    task.done(5)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_key_is_replaced_by_one_that_is_valid_for_as_long(window: Window, width: int) -> None:
    name = f"replaced at {width}"
    make(window, name)
    task = Task(window, "a key is replaced", width=width)
    task.click(place(task.page, "API keys"))
    task.click(task.page.locator(".row-link", has_text=name))
    expect(task.page.get_by_text("valid for 90 days from now")).to_be_visible()
    task.click(task.page.get_by_role("button", name="Replace"))
    assert task.page.get_by_test_id("api-key").inner_text().startswith("sbx_")
    expect(task.page.get_by_text("It is valid for 90 days")).to_be_visible()
    task.done(3)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_key_is_revoked(window: Window, width: int) -> None:
    name = f"revoked at {width}"
    make(window, name)
    task = Task(window, "a key is revoked", width=width)
    task.click(place(task.page, "API keys"))
    task.click(task.page.locator(".row-link", has_text=name))
    task.click(task.page.get_by_role("button", name="Revoke"))
    yes = task.page.locator("#confirm-yes")
    expect(yes).to_be_disabled()
    task.page.locator("#confirm-word").fill(name)
    task.page.get_by_label("Reason").fill("the test is over")
    task.click(yes)
    expect(task.page.get_by_text(re.compile("The key is revoked. Gateways were told"))).to_be_visible()
    task.done(4)


@pytest.mark.parametrize("width", WIDTHS)
def test_who_used_how_much_is_seen(house: House, window: Window, served: str, width: int) -> None:
    name = f"used at {width}"
    text = make(window, name)
    page = window.tab()
    answers = set()
    while 200 not in answers:  # the gateway learns of key and model by push
        answers.add(house.call(f"/v1/models/{served}:predict", text, {"instances": [1.0]})[0])
        page.wait_for_timeout(100)
    while _jobs(window, page, name) == "0":  # until the job is added up
        page.wait_for_timeout(100)
    page.context.close()
    task = Task(window, "who used how much", width=width)
    task.click(place(task.page, "Accounts"))
    task.click(task.page.get_by_role("link", name="Last 30 days"))
    row = task.page.get_by_role("row").filter(has=task.page.get_by_role("link", name=name))
    expect(row.locator("[data-label='Jobs ended']")).to_have_text("1")
    task.done(2)


def _jobs(window: Window, page: Page, name: str) -> str:
    page.goto(window.url("/accounts?span=hour"))
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name))
    return row.locator("[data-label='Jobs ended']").inner_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_an_account_is_disabled_and_enabled_again(house: House, window: Window, width: int) -> None:
    name = f"disabled at {width}"
    text = make(window, name)
    task = Task(window, "an account is disabled", width=width)
    while house.call("/v1/models", text)[0] != 200:  # the gateway learns of the key by push
        task.page.wait_for_timeout(100)
    task.click(place(task.page, "Accounts"))
    task.click(task.page.locator(".row-link", has_text=name))
    task.click(task.page.get_by_role("button", name="Disable"))
    task.click(task.page.locator("#confirm-yes"))
    expect(task.page.get_by_text("calls with its keys are refused until it is enabled")).to_be_visible()
    while house.call("/v1/models", text)[0] != 401:
        task.page.wait_for_timeout(20)
    task.page.get_by_role("button", name="Enable").click()
    window.confirm_if_asked(task.page)
    while house.call("/v1/models", text)[0] != 200:
        task.page.wait_for_timeout(20)
    task.done(4)


@pytest.mark.parametrize("width", WIDTHS)
def test_an_account_is_deleted(window: Window, width: int) -> None:
    name = f"deleted at {width}"
    make(window, name)
    task = Task(window, "an account is deleted", width=width)
    task.click(place(task.page, "Accounts"))
    task.click(task.page.locator(".row-link", has_text=name))
    task.click(task.page.get_by_label("are cancelled"))
    task.click(task.page.get_by_role("button", name="Delete"))
    task.page.locator("#confirm-word").fill(name)
    task.page.get_by_label("Reason").fill("the test is over")
    task.click(task.page.locator("#confirm-yes"))
    expect(task.page.get_by_text("its keys have ended")).to_be_visible()
    task.done(5)
