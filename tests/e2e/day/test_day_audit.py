"""The audit."""

import csv
import io
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.browser import Window
from tests.e2e.day.clicks import WIDTHS, Task

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


@pytest.mark.parametrize("width", WIDTHS)
def test_anothers_changes_are_found_and_exported(window: Window, tmp_path: Path, width: int) -> None:
    task = Task(window, "another's changes, exported", width=width)
    page = task.page
    task.click(page.get_by_role("navigation", name="Main").get_by_role("link", name="Audit"))
    page.get_by_label("Filter", exact=True).fill("actor:system")
    page.keyboard.press("Enter")
    page.wait_for_url("**/audit?q=actor*")
    expect(page.locator("tbody tr").first).to_contain_text("system:")
    with page.expect_download() as download:
        task.click(page.get_by_role("link", name="CSV"))
    file = tmp_path / "audit.csv"
    download.value.save_as(file)
    rows = list(csv.DictReader(io.StringIO(file.read_bytes().decode(), newline="")))
    assert rows
    assert all(row["actor_name"].startswith("system:") for row in rows)
    task.done(2)
