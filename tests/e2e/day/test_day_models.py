"""Models: added, moved, tried, deleted, paused, and why one is slow. Each task begins at the board."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Locator, Page, WebSocketRoute, expect

from tests.console.test_archives import archive_of
from tests.e2e.browser import House, Window
from tests.e2e.day.clicks import WIDTHS, Task
from tests.rigs import models

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
AT_BOTH = pytest.mark.parametrize("width", WIDTHS)


@pytest.fixture(scope="module")
def archive() -> bytes:
    """A SavedModel that computes half of each number plus two."""
    return archive_of(models.half_plus_two())


@pytest.fixture
def model(window: Window, archive: bytes, request: pytest.FixtureRequest) -> Iterator[str]:
    """A model of this test with versions 1 and 2, of which 2 is the default; deleted after it."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[-60:]
    page = window.tab()
    for _ in (1, 2):
        page.goto(window.url(f"/models/-/upload?name={name}"))
        window.confirm_if_asked(page)
        upload(page, archive, name)
    yield name
    page.goto(window.url(f"/models/{name}"))
    if page.get_by_role("button", name="Delete").count():
        page.locator(f"form[action='/models/{name}/delete'] button").click()
        page.locator("#confirm-word").fill(name)
        page.locator("#confirm-yes").click()
        page.wait_for_load_state()
        window.confirm_if_asked(page)
    page.context.close()


def upload(page: Page, archive: bytes, name: str) -> None:
    """Fill the form in and send it."""
    fill_upload(page, archive, name).get_by_role("button", name="Upload").click()
    page.wait_for_url(re.compile(f"/models/{name}$"))


def fill_upload(page: Page, archive: bytes, name: str) -> Locator:
    """Choose the file and write the name: typing, no clicks."""
    form = page.locator("form[action='/models/-/upload']")
    form.get_by_label(re.compile("^Name")).fill(name)
    file: FilePayload = {"name": "model.tar.gz", "mimeType": "application/gzip", "buffer": archive}
    form.locator("input[type=file]").set_input_files(file)
    return form


def row(task: Task, model: str) -> Locator:
    """The model's link on the board; typed into the filter where idle ones are folded."""
    task.page.locator("#queues-filter").fill(model)
    return task.page.locator("#queues").get_by_role("link", name=model, exact=True)


def confirm(task: Task) -> None:
    """The button of the dialog that does it."""
    task.click(task.page.locator("#confirm-yes"))


def key_for(window: Window, model: str) -> str:
    """A key of a consumer."""
    page = window.tab()
    page.goto(window.url("/keys/new"))
    window.confirm_if_asked(page)
    page.get_by_label(re.compile("^Name")).fill(model)
    page.get_by_role("button", name="Create key").click()
    text = page.get_by_test_id("api-key").inner_text()
    page.context.close()
    return text


def call(house: House, model: str, key: str, count: int) -> None:
    """Answered calls of the model; the gateway learns of key and model by push."""
    path, body = f"/v1/models/{model}:predict", {"instances": [1.0, 2.0]}
    deadline = time.monotonic() + 60
    while (answer := house.call(path, key, body))[0] != 200:
        assert time.monotonic() < deadline, answer
    for _ in range(count - 1):
        assert house.call(path, key, body)[0] == 200


@AT_BOTH
def test_a_model_is_added_from_a_folder(house: House, window: Window, width: int) -> None:
    name = f"from-a-folder-{width}"
    folder = house.shown(models.half_plus_two(), name)
    task = Task(window, "model from a folder", width=width)
    task.click(task.page.get_by_role("link", name="Models", exact=True))
    task.click(task.page.get_by_role("link", name="Add model").first)
    form = task.page.locator("form[action='/models/-/register']")
    form.get_by_label(re.compile("^Name")).fill(name)
    form.get_by_label("Path").fill(folder)
    task.click(form.get_by_role("button", name="Register"))
    expect(task.page.get_by_role("heading", level=1)).to_have_text(name)
    task.done(3)


@AT_BOTH
def test_a_model_is_uploaded(window: Window, archive: bytes, width: int) -> None:
    name = f"uploaded-{width}"
    task = Task(window, "upload", width=width)
    task.click(task.page.get_by_role("link", name="Models", exact=True))
    task.click(task.page.get_by_role("link", name="Add model").first)
    task.click(fill_upload(task.page, archive, name).get_by_role("button", name="Upload"))
    expect(task.page.get_by_role("heading", level=1)).to_have_text(name)
    task.done(6)


@AT_BOTH
def test_a_label_is_set_after_a_look_at_what_moves(window: Window, model: str, width: int) -> None:
    task = Task(window, "label", width=width)
    task.click(row(task, model))
    task.page.get_by_label("Label", exact=True).fill("stable")
    task.page.locator("#label-version").select_option("1")
    task.click(task.page.get_by_role("button", name="Set label"))
    expect(task.page.locator("main")).to_contain_text("Requests by label stable")
    task.click(task.page.get_by_role("button", name="Set label"))
    expect(task.page.locator("main")).to_contain_text("stable → 1")
    task.done(3)


@AT_BOTH
def test_a_version_is_rolled_back(window: Window, model: str, width: int) -> None:
    task = Task(window, "roll back", width=width)
    task.click(row(task, model))
    task.click(task.page.get_by_role("link", name="Roll back to version 1"))
    expect(task.page.locator("main")).to_contain_text("Requests without a version")
    task.click(task.page.get_by_role("button", name="Roll back"))
    expect(task.page.locator(".message").first).to_contain_text("The default version is changed")
    task.done(3)


@AT_BOTH
def test_a_version_is_deleted(window: Window, model: str, width: int) -> None:
    task = Task(window, "delete a version", width=width)
    task.click(row(task, model))
    task.click(task.page.locator(f"form[action='/models/{model}/versions/1/delete']").get_by_role("button"))
    confirm(task)
    expect(task.page.locator("#deleted")).to_be_visible()
    task.done(3)


@AT_BOTH
def test_a_model_is_deleted(window: Window, model: str, width: int) -> None:
    task = Task(window, "delete a model", width=width)
    task.click(row(task, model))
    task.click(task.page.locator(f"form[action='/models/{model}/delete']").get_by_role("button"))
    task.page.locator("#confirm-word").fill(model)
    confirm(task)
    expect(task.page.locator(".message").first).to_contain_text("deleted")
    task.done(3)


@AT_BOTH
def test_a_model_is_tried(window: Window, model: str, width: int) -> None:
    task = Task(window, "try it", width=width)
    task.click(row(task, model))
    task.click(task.page.get_by_role("link", name="Try it"))
    task.click(task.page.get_by_role("button", name="Send"))
    expect(task.page.get_by_label("Answer of the front")).to_have_text('{"outputs":[2.5]}')
    expect(task.page.locator("main")).to_contain_text("Run began")
    task.done(3)


@AT_BOTH
def test_a_slow_model_says_why(house: House, window: Window, model: str, width: int) -> None:
    call(house, model, key_for(window, model), 3)
    look = window.tab()
    look.goto(window.url(f"/models/{model}"))
    while not look.locator("#why").count():  # the projector is a moment behind
        look.reload()
    look.context.close()
    task = Task(window, "slow model and why", width=width)
    task.click(row(task, model))
    section = task.page.get_by_role("region", name="Where the time goes")
    expect(section.locator(".causes li").first).to_contain_text("%")
    expect(task.page.get_by_role("region", name="Last hour")).to_contain_text(re.compile("Run p50"))
    task.done(2)


class Server:
    """The console's end of the board's websocket, with the queues of a test."""

    def __init__(self, page: Page, rows: dict[str, dict[str, Any]]) -> None:
        self.rows = rows
        self._seq = 1
        self._socket: WebSocketRoute | None = None
        page.route_web_socket(re.compile("/ws/live$"), self._open)

    def change(self, model: str, row: dict[str, Any]) -> None:
        """What the console sends of a row that changes."""
        self.rows[model] = row
        self._seq += 1
        assert self._socket is not None
        self._send({"t": "delta", "topic": "queues", "seq": self._seq, "set": {model: row}, "del": []})

    def _open(self, socket: WebSocketRoute) -> None:
        self._socket = socket
        socket.on_message(lambda text: self._answer(json.loads(text)["topics"]))

    def _answer(self, topics: list[str]) -> None:
        for topic in topics:
            state: Any = self.rows if topic == "queues" else [] if topic == "ticker" else {}
            seq = self._seq if topic == "queues" else 1
            self._send({"t": "snap", "topic": topic, "epoch": "e", "seq": seq, "state": state})

    def _send(self, frame: dict[str, Any]) -> None:
        assert self._socket is not None
        self._socket.send(json.dumps(frame | {"now": datetime.now(UTC).isoformat()}))


def quiet(**changes: Any) -> dict[str, Any]:
    """A row of a model that nobody calls."""
    row: dict[str, Any] = dict.fromkeys(("waiting", "running", "lost", "ready", "loading", "fetching", "failed"), 0)
    row |= dict.fromkeys(("arrived_per_s", "ended_per_s", "deadline_at", "prefetched", "sampled"), 0)
    row |= {"oldest_at": None, "wait_p50_s": None, "run_p50_s": None, "history": [], "state": "cold"}
    return row | {"label": "not loaded", "why": "", "drain_s": 0} | changes


@AT_BOTH
def test_a_board_of_130_models_folds_the_idle_ones_and_finds_them(window: Window, width: int) -> None:
    page = window.tab(width=width)
    rows = {f"idle-{number:03d}": quiet() for number in range(128)}
    rows["in-memory"] = quiet(ready=1, state="ready", label="ready")
    rows["busy"] = quiet(waiting=3, oldest_at=1.0, drain_s=None)
    rows["paused"] = quiet(state="paused", label="paused")
    server = Server(page, rows)
    page.goto(window.url("/"))
    shown = page.locator("#queues").get_by_role("rowheader")
    expect(shown).to_have_text(["busy", "paused"])
    fold = page.locator("#queues-fold")
    expect(fold).to_have_text("129 idle models, 1 of them in the memory of a device")
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    # What becomes busy appears at once, as live rows do.
    server.change("idle-007", quiet(waiting=1, oldest_at=2.0, drain_s=None))
    expect(shown).to_have_text(["busy", "paused", "idle-007"])
    expect(fold).to_have_text("128 idle models, 1 of them in the memory of a device")
    fold.press("Enter")
    expect(fold).to_have_attribute("aria-expanded", "true")
    expect(shown).to_have_count(131)
    fold.press("Enter")
    expect(shown).to_have_count(3)
    page.get_by_label("Filter the models").fill("IDLE-01")
    expect(shown).to_have_count(10)
    expect(fold).to_be_hidden()
    page.get_by_label("Filter the models").fill("nothing")
    expect(page.locator("#queues-note")).to_have_text("No model is called so.")
    page.get_by_label("Filter the models").fill("")
    expect(shown).to_have_count(3)
    page.context.close()
