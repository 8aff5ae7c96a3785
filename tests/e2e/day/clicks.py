"""Counts the clicks that a task of an operator's day takes, from the board; what is typed is apart."""

from typing import Final

from playwright.sync_api import Locator, Page

from tests.e2e.browser import Window

WIDTHS: Final = (1440, 390)
"""Each task is done on a wide screen and on a phone."""


class Task:
    """One task, in a tab of its own that shows the board. ``page`` is for looking and typing, never for clicks."""

    def __init__(self, window: Window, what: str, *, width: int = WIDTHS[0], theme: str = "light") -> None:
        self.window = window
        self.what = what
        self.clicks = 0
        self.page: Page = window.tab(width=width, theme=theme)
        self.page.goto(window.url("/"))

    def click(self, target: Locator) -> None:
        """One click. A page that asks for the password first is answered, and not counted."""
        target.click()
        self.clicks += 1
        self.page.wait_for_load_state()
        self.window.confirm_if_asked(self.page)

    def done(self, most: int) -> None:
        """The task is done: it took at most so many clicks. Closes the tab."""
        print(f"{self.what}: {self.clicks} clicks, at most {most}")
        assert self.clicks <= most, f"{self.what} took {self.clicks} clicks, not {most}"
        self.page.context.close()
