"""Workers and devices."""

import pytest

from tests.e2e.browser import Window
from tests.e2e.day.clicks import WIDTHS, Task

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_worker_is_found(window: Window, width: int) -> None:
    task = Task(window, "a worker's page", width=width)
    task.click(task.page.locator(".lane a[href^='/workers/']").first)
    task.page.get_by_role("heading", level=1).wait_for()
    task.done(1)
