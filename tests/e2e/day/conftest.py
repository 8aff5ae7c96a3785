"""The stack and the browser that all tasks of the day share."""

from collections.abc import Iterator

import pytest

from tests.e2e.browser import House, NewHouse, Window, open_window
from tests.rigs.runningstack import RunningStack


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory, running: RunningStack | None) -> Iterator[House]:
    if running is not None:
        yield House(running.data)
        return
    with NewHouse(tmp_path_factory.mktemp("day") / "data") as house:
        yield house


@pytest.fixture(scope="session")
def window(house: House) -> Iterator[Window]:
    with open_window(house) as window:
        yield window
