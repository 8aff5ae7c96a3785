"""The command palette, keys and saved views: by keyboard alone, and by a button on a phone."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser import Window
from tests.e2e.day.clicks import WIDTHS, Task

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def _found(page: Page, text: str, line: str) -> None:
    """Type into the palette until the line is the chosen one."""
    page.get_by_role("combobox", name="Find").fill(text)
    expect(page.get_by_role("option", name=line).first).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize("width", WIDTHS)
def test_an_act_is_found_by_name_and_leads_to_its_dialog_which_acts_on_nothing(window: Window, width: int) -> None:
    task = Task(window, "drain a worker by name", width=width)
    page = task.page
    task.click(page.get_by_role("button", name="Find or act"))
    _found(page, "drain worker-2", "Drain worker-2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/workers/worker-2")
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("worker-2")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.reload()
    expect(page.get_by_role("button", name="Drain")).to_be_visible()
    expect(page.locator("dialog[open]")).to_have_count(0)
    task.done(1)


def test_keys_find_move_open_and_go(window: Window) -> None:
    page = window.tab()
    page.goto(window.url("/workers"))
    page.keyboard.press("Control+k")
    _found(page, "audi", "Audit")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/audit")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_url("**/workers")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="worker-1", exact=True)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/workers/worker-2")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    page.context.close()


def test_shortcuts_are_switched_off_and_ctrl_k_stays(window: Window) -> None:
    page = window.tab()
    page.goto(window.url("/settings"))
    page.get_by_role("button", name="Switch off").click()
    expect(page.get_by_role("button", name="Switch on")).to_be_visible()
    page.keyboard.press("?")
    page.keyboard.press("/")
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Find")).to_be_focused()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Switch on").click()
    expect(page.get_by_role("button", name="Switch off")).to_be_visible()
    page.context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_filter_is_saved_under_a_name_and_found_above_the_list_and_in_the_palette(window: Window, width: int) -> None:
    task = Task(window, "save a view", width=width)
    page, name = task.page, f"Refusals {width}"
    page.goto(window.url("/audit?result=refused"))
    task.click(page.locator(".list-bar summary"))
    page.get_by_label("Name").fill(name)
    task.click(page.get_by_role("button", name="Save view"))
    expect(page.get_by_role("link", name=name)).to_have_attribute("aria-current", "true")
    page.goto(window.url("/"))
    page.keyboard.press("/")
    _found(page, name, name)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/audit.*result=refused"))
    task.done(2)
