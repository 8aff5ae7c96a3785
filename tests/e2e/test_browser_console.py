"""The console in headless Chromium, on the stack that ``signalbox up`` starts: what an operator does and sees."""

import random
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, WebSocketRoute, expect

from console.board.protocol import Topic, Topics
from console.board.rows import Waiter
from tests import depth
from tests.console.mirror import Mirror
from tests.console.test_archives import archive_of
from tests.console.test_rights import is_endpoint, routes
from tests.e2e.browser import House, NewHouse, Window, open_window
from tests.e2e.pagefaults import COVERED, SHIFTS, WATCH, focus_all, judged, moved, resize, walk_focus
from tests.rigs import models
from tests.rigs.runningstack import RunningStack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
MARK = secrets.token_hex(3)
MODEL = f"half_{MARK}"
SLOW = f"slow_{MARK}"
KEY = f"module key {MARK}"
"""Names of this run's own, because the stack may have seen others."""
SCREENS: dict[str, tuple[str, ...]] = {
    "live:board": ("/",),
    "jobs": ("/jobs", "/jobs?q=model:{model}", "/jobs?q=colour:red", "/jobs?q=model:none", "/jobs?group=error"),
    "job": ("/jobs/{job}",),
    "job-input": ("/jobs/{job}/input",),
    "job-output": ("/jobs/{job}/output",),
    "selections": ("/jobs/-/selections",),
    "selection": ("/jobs/-/selections/{selection}",),
    "dead-letters": ("/jobs/-/dead-letters",),
    "dead-letter-group": ("/jobs/-/dead-letters/-/group?model={model}&error=none",),
    "models": ("/models", "/models?state=ready", "/models?q=nothing-is-called-so"),
    "model": ("/models/{model}",),
    "deleted": ("/models/-/deleted",),
    "version": ("/models/{model}/versions/1",),
    "try-model": ("/models/{model}/try", "/models/{model}/try?version=1&signature=serving_default"),
    "trial": ("/models/{model}/try/{trial}",),
    "model-move": (
        "/models/{model}/move?what=default&version=1",
        "/models/{model}/move?what=label&label=new&version=1",
    ),
    "repositories": ("/repositories",),
    "repository": ("/repositories/uploads",),
    "repository-settings": ("/repositories/uploads/settings",),
    "add-repository": ("/repositories/-/add",),
    "model-settings": ("/models/{model}/settings",),
    "model-autoscale": ("/models/{model}/autoscale",),
    "register-model": ("/models/-/register",),
    "upload-model": ("/models/-/upload?name={model}",),
    "workers": ("/workers",),
    "worker": ("/workers/{worker}",),
    "hosts": ("/workers/-/hosts",),
    "scaling": ("/workers/-/scaling",),
    "host": ("/workers/-/hosts/{host}",),
    "device": ("/workers/-/devices/{gpu}",),
    "keys": ("/keys",),
    "key": ("/keys/{key}",),
    "create-key": ("/keys/new",),
    "accounts": ("/accounts",),
    "account": ("/accounts/{key}",),  # made with the key, under its id
    "create-account": ("/accounts/new",),
    "edit-account": ("/accounts/{key}/edit",),
    "results": ("/results",),
    "create-subscription": ("/results/subscribe",),
    "webhooks": ("/results/webhooks",),
    "create-webhook": ("/results/new-webhook",),
    "webhook-hosts": ("/accounts/{key}/webhook-hosts",),
    "batches": ("/results/batches",),
    "queues": ("/queues",),
    "queue": ("/queues/{queue}",),
    "create-queue": ("/queues/-/create",),
    "queue-settings": ("/queues/{queue}/settings",),
    "audit": ("/audit", "/audit?q=actor:nobody"),
    "settings": ("/settings",),
    "users": ("/settings/users",),
    "create-user": ("/settings/users/new",),
    "set-models": ("/settings/users/admin/models",),
    "add-second-factor": ("/settings/second-factor",),
    "recovery-codes": (),  # shown once
    "login-code": (),  # for whose password was just right
    "enrol": (),
    "sign-on": (),  # leads to a provider
    "signed-on": (),
    "signed-on-again": ("/login/signed-on-again",),
    "api-docs": ("/api/",),
    "confirm-password": ("/confirm?next=/keys",),
    "login": ("/login",),
    "key-created": (),  # where a new key is shown: a visit makes one
}
"""Every route with a page: what is visited of it, with real things in the place of names."""
LOOKS = depth.at(
    short=[(360, "light"), (768, "dark"), (1440, "light")],
    full=[(width, theme) for width in (360, 768, 1440) for theme in ("light", "dark")],
)
"""Sizes and themes in which each screen is judged. A theme changes colours and no size."""
UNFOLD = "document.querySelectorAll('.card > details').forEach((one) => { one.open = true; })"
"""Opens the forms that a page folds away."""
NO_SCREENS = {"health", "job-live", "api-schema", "export", "longest-waiting"}
"""A word, parts of the key's and the job's page, a document, a file, and a way to a job."""
NO_SCREENS |= {"job-input-image", "job-output-image", "dead-letter"}
"""Images, and what takes a job that was given up: tests/e2e/day/test_day_payloads.py."""
NO_SCREENS |= {"webhook", "webhook-secret", "batch"}
"""What takes a receiver or a file: tests/console/test_outbound.py."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, running: RunningStack | None) -> Iterator[House]:
    if running is not None:
        yield House(running.data)
        return
    with NewHouse(tmp_path_factory.mktemp("house") / "data") as house:
        yield house


@pytest.fixture(scope="module")
def window(house: House) -> Iterator[Window]:
    with open_window(house) as window:
        yield window


@pytest.fixture(scope="module")
def key(window: Window) -> str:
    """A key made in the browser, for a model registered in the browser."""
    page = window.tab()
    _register(window, page, MODEL, models.half_plus_two())
    text = _create_key(window, page, KEY)
    page.context.close()
    return text


def _register(window: Window, page: Page, name: str, version: Path) -> None:
    page.goto(window.url("/models"))
    page.get_by_role("link", name="Add model").first.click()
    window.confirm_if_asked(page)
    form = page.locator("form[action='/models/-/register']")
    form.get_by_label(re.compile("^Name")).fill(name)
    form.get_by_label(re.compile("Path|Folder")).fill(window.house.shown(version, name))
    form.get_by_role("button", name="Register").click()
    page.wait_for_url(window.url(f"/models/{name}"))


def _create_key(window: Window, page: Page, name: str, look: Callable[[Page], None] | None = None) -> str:
    """A new key's text; look: called while it is shown."""
    page.goto(window.url("/keys"))
    page.get_by_role("link", name=re.compile("Create.*key", re.IGNORECASE)).first.click()
    window.confirm_if_asked(page)
    page.get_by_label(re.compile("^Name")).fill(name)
    page.get_by_role("button", name="Create key").click()
    text = page.get_by_test_id("api-key").inner_text()
    if look is not None:
        look(page)
    page.get_by_role("button", name="Copy").first.click()
    page.get_by_role("link", name="I have copied it").click()
    return text


def _until_known(house: House, key: str) -> None:
    """The gateway learns of keys and models by push; the first answer that is not a refusal."""
    deadline = time.monotonic() + 30
    while house.call("/v1/models", key)[0] != 200:
        assert time.monotonic() < deadline, "the gateway never learnt of the key"


def _predict(house: House, key: str) -> tuple[int, Any]:
    return house.call(f"/v1/models/{MODEL}:predict", key, {"instances": [1.0, 2.0, 5.0]})


def test_a_key_made_in_the_browser_calls_a_model_and_is_refused_within_a_second_of_its_revocation(
    house: House, window: Window, key: str
) -> None:
    page = window.tab()
    text = _create_key(window, page, "short-lived")
    _until_known(house, text)
    status, answer = _predict(house, text)
    assert (status, answer) == (200, {"predictions": [2.5, 3.0, 4.5]})
    page.get_by_role("button", name="Revoke").click()
    page.locator("#confirm-word").fill("short-lived")
    page.get_by_label("Reason").fill("the test is over")
    page.locator("#confirm-yes").click()
    page.get_by_text("revoked").first.wait_for()
    reported_at = time.monotonic()
    while (status := _predict(house, text)[0]) != 401:
        assert time.monotonic() < reported_at + 1.0, f"still answered with {status}"
    assert _predict(house, key)[0] == 200
    page.context.close()


def test_the_button_of_a_form_that_is_sent_takes_no_second_click(window: Window) -> None:
    page = window.tab()
    page.goto(window.url("/keys/new"))
    window.confirm_if_asked(page)
    page.get_by_label(re.compile("^Name")).fill("clicked twice")
    page.wait_for_load_state("networkidle")
    is_off = page.evaluate("""() => {
      window.addEventListener("submit", (event) => event.preventDefault(), { once: true });
      const button = document.querySelector("form[action='/keys/new'] button[type=submit]");
      button.click();
      return button.disabled;
    }""")
    assert is_off
    page.context.close()


def test_a_call_passes_by_on_the_board_while_it_happens(house: House, window: Window, key: str) -> None:
    page = window.tab()
    page.goto(window.url("/"))
    expect(page.locator("#link")).to_have_text("live")
    assert _predict(house, key)[0] == 200
    entry = page.locator("#ticker li", has_text=f"{MODEL}:1").filter(has_text="succeeded")
    expect(entry.first).to_be_visible()
    row = page.locator("#queues tr", has=page.get_by_role("rowheader", name=MODEL))
    expect(row.locator(".state")).to_have_attribute("data-state", "ready")
    page.context.close()


def test_an_idle_board_touches_only_what_has_changed_and_animates_nothing(window: Window) -> None:
    page = window.tab()
    page.goto(window.url("/"))
    expect(page.locator("#link")).to_have_text("live")
    lane = page.locator(".lane").first
    expect(lane).to_have_attribute("data-state", "held")  # and idle
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable")

    def recalculated() -> int:
        found = metrics.send("Performance.getMetrics")["metrics"]
        return int(next(each["value"] for each in found if each["name"] == "RecalcStyleCount"))

    page.evaluate(WATCH)
    before = recalculated()
    renewals = int(lane.locator(".lane-held-for span").nth(1).inner_text().split()[0])
    reported = lane.locator(".lane-held-for span").nth(1)
    expect(reported).to_have_text(re.compile("|".join(f"^{renewals + more} " for more in range(4, 100))))
    renewed = int(reported.inner_text().split()[0]) - renewals
    changes = recalculated() - before
    assert changes <= renewed * 12, "a renewal is two seconds: a few changes of text, not a frame each 16 ms"
    assert page.evaluate("window.needless") == []
    page.context.close()


def test_the_lane_changes_hands_before_the_operators_eyes_when_its_holder_dies(
    house: House, window: Window, key: str
) -> None:
    page = window.tab()
    page.goto(window.url("/"))
    lane = page.locator(".lane").first
    expect(lane).to_have_attribute("data-state", "held")
    holder = lane.locator(".lane-value").nth(0).inner_text()
    token = int(lane.locator(".lane-value").nth(1).inner_text())
    house.kill(holder)
    expect(lane.locator(".lane-value").nth(0)).not_to_have_text(re.compile(f"{holder}|none|promised"))
    expect(lane).to_have_attribute("data-state", "held")
    assert int(lane.locator(".lane-value").nth(1).inner_text()) > token
    assert _predict(house, key) == (200, {"predictions": [2.5, 3.0, 4.5]})
    page.context.close()


def test_asking_a_holder_to_release_hands_the_lane_over_and_is_audited(house: House, window: Window, key: str) -> None:
    page = window.tab()
    _register(window, page, SLOW, models.slow())
    page.goto(window.url("/"))
    lane = page.locator(".lane").first
    jobs: list[str] = []
    for _ in range(240):
        status, job = house.call(f"/v1/models/{SLOW}:predict", key, {"instances": [0.2]}, Prefer="respond-async")
        assert status == 202
        jobs.append(job["id"])
    # Under load the other worker takes a ticket; a holder yields to it after its quantum by itself.
    expect(lane.locator(".waiters li:not(.none)")).to_have_count(1)
    expect(lane.locator(".lane-held-for")).to_contain_text(re.compile(r"^\d\.\d s"))
    token = lane.locator(".lane-value").nth(1).inner_text()
    page.get_by_role("button", name="Ask to release").first.click()
    page.get_by_label("Reason").fill("to see it move")
    page.locator("#confirm-yes").click()
    expect(page.locator("#toasts")).to_contain_text("The holder is asked")
    expect(lane.locator(".lane-value").nth(1)).not_to_have_text(re.compile(f"^({token}|–)$"), timeout=15_000)
    for worker in ("worker-1", "worker-2"):
        expect(lane.locator(".strip")).to_contain_text(f"{worker}: ")
    page.goto(window.url("/audit"))
    row = page.get_by_role("row").filter(has_text="lanes.release").first
    expect(row).to_contain_text("to see it move")
    for job in reversed(jobs):  # or the board shows their ends beside those of the tests that follow
        page.request.post(f"{house.facts['front']}/v1/jobs/{job}/cancel", headers={"Authorization": f"Bearer {key}"})
    page.context.close()


def test_a_frozen_board_holds_still_and_counts_what_waits(house: House, window: Window, key: str) -> None:
    page = window.tab()
    page.goto(window.url("/"))
    expect(page.locator(".lane").first).to_have_attribute("data-state", re.compile("held|loading|computing|partly"))
    page.keyboard.press("f")
    freeze = page.locator("#freeze")
    expect(freeze).to_have_attribute("aria-pressed", "true")
    before = page.locator("#ticker").inner_text()
    _predict(house, key)
    expect(freeze).to_contain_text(re.compile(r"[1-9]\d* changes? waiting"))
    assert page.locator("#ticker").inner_text() == before
    freeze.click()
    expect(freeze).to_have_text("Freeze")
    expect(page.locator("#ticker")).not_to_have_text(before)
    page.context.close()


def test_the_board_says_that_nats_is_away_disables_its_buttons_and_comes_back(
    house: House, window: Window, key: str
) -> None:
    page = window.tab()
    page.goto(window.url("/"))
    expect(page.locator("#link")).to_have_text("live")
    page.evaluate(
        """() => {
            const banner = document.getElementById("stale");
            const look = () => {
                const buttons = [...document.querySelectorAll("[data-live-only]")];
                if (!banner.hidden && banner.textContent.includes("cannot reach NATS")
                    && buttons.length && buttons.every((button) => button.disabled))
                    document.body.dataset.toldAway = "yes";
            };
            new MutationObserver(look).observe(banner, { attributes: true, childList: true, subtree: true });
        }"""
    )
    house.kill("nats")
    # It may be back within a second: what was shown is remembered by the observer.
    expect(page.locator("body")).to_have_attribute("data-told-away", "yes")
    expect(page.locator("#toasts")).to_contain_text("Back live")
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator(".lane").first).to_have_attribute("data-state", re.compile("held|loading|computing|partly"))
    page.context.close()


def test_the_board_says_that_the_console_is_away_and_resumes_without_a_reload(
    house: House, window: Window, key: str
) -> None:
    page = window.tab()
    page.goto(window.url("/"))
    expect(page.locator("#link")).to_have_text("live")
    page.evaluate("window.isSamePage = true")
    house.kill("console")
    expect(page.locator("#link")).not_to_have_text("live")
    expect(page.locator("#link")).to_have_text("live")
    assert page.evaluate("window.isSamePage")
    _predict(house, key)
    expect(page.locator("#ticker li", has_text=f"{MODEL}:1").first).to_be_visible()
    page.context.close()


@pytest.mark.proof
def test_the_browsers_mirror_takes_every_frame_as_the_one_proven_in_python(window: Window) -> None:
    page = window.tab()
    page.goto(window.url("/models"))
    runs = [_random_frames(seed) for seed in range(depth.at(short=40, full=200))]
    reported = page.evaluate(
        """async (runs) => {
            const { Mirror } = await import("/static/js/live.js");
            return runs.map((frames) => {
                const mirror = new Mirror();
                return frames.map((text) => {
                    const { wants } = mirror.take(JSON.parse(text));
                    return JSON.parse(JSON.stringify(
                        [mirror.epoch, mirror.seqs, mirror.rows, mirror.entries, wants.sort()]));
                });
            });
        }""",
        runs,
    )
    for frames, states in zip(runs, reported, strict=True):
        mirror = Mirror()
        for text, state in zip(frames, states, strict=True):
            mirror.wants.clear()
            mirror.take(text)
            assert state == [mirror.epoch, mirror.seqs, mirror.rows, mirror.entries, sorted(mirror.wants)]
    page.context.close()


def _random_frames(seed: int) -> list[str]:
    """What a bad network might hand to a browser: losses, repeats, late frames, another epoch."""
    luck = random.Random(seed)
    frames: list[str] = []
    for epoch in ("e1", "e2")[: luck.choice([1, 1, 2])]:
        topics = Topics(epoch, [Topic("lanes"), Topic("ticker", is_list=True)])
        late: list[str] = []
        for now in range(luck.randrange(3, 25)):
            topics.topics["lanes"].set(luck.choice("xyz"), Waiter("w", float(now), luck.randrange(9)))
            if luck.random() < 0.3:
                topics.topics["lanes"].remove(luck.choice("xyz"))
            topics.topics["ticker"].append(Waiter("t", float(now), seed))
            made = [frame.text for frame in topics.flush(float(now))]
            made += [topics.snapshot(luck.choice(["lanes", "ticker"]), now).text] * (luck.random() < 0.3)
            made += [topics.tick(now, {}).text] * (luck.random() < 0.3)
            for text in made:
                fate = luck.choice(["arrives", "arrives", "arrives", "lost", "twice", "late"])
                frames += [text] * {"arrives": 1, "twice": 2}.get(fate, 0)
                late += [text] * (fate == "late")
            if luck.random() < 0.2:
                frames += late
                late.clear()
    return frames


def test_the_theme_is_kept_and_shown_before_the_first_paint(window: Window) -> None:
    page = window.tab()
    page.goto(window.url("/settings"))
    page.locator("main").get_by_role("button", name="Dark").click()
    page.goto(window.url("/models"))
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(21, 35, 43)"
    page.context.close()


def test_a_page_one_of_whose_scripts_did_not_come_is_loaded_again_once_and_then_says_so(window: Window) -> None:
    page = window.tab()
    lost: list[str] = []

    def lose(route: Route) -> None:
        if len(lost) == 1:
            route.continue_()
        else:  # as the browser does while its machine changes its network
            lost.append(route.request.url)
            route.abort("failed")

    page.route("**/js/confirm.js", lose)
    page.goto(window.url("/models"))
    page.wait_for_function("performance.getEntriesByType('navigation')[0].type === 'reload'")
    page.wait_for_load_state()
    page.get_by_role("button", name="Find or act").click()
    expect(page.get_by_role("combobox", name="Find")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    lost *= 2
    page.goto(window.url("/models"))
    expect(page.get_by_role("alert")).to_contain_text("Load the page again")
    assert page.evaluate("performance.getEntriesByType('navigation')[0].type") == "navigate", "not for ever"
    page.context.close()


@pytest.fixture(scope="module")
def things(house: House, window: Window, key: str) -> dict[str, str]:
    """Something of each kind to look at: a model with two versions and a label, a job that ended, a key, a worker."""
    page = window.tab()
    page.goto(window.url(f"/models/-/upload?name={MODEL}"))
    window.confirm_if_asked(page)
    form = page.locator("form[action='/models/-/upload']")
    archive = archive_of(models.half_plus_two())
    form.locator("input[type=file]").set_input_files(
        {"name": "model.tar.gz", "mimeType": "application/gzip", "buffer": archive}
    )
    form.get_by_label("Version 1, the default now").check()
    form.get_by_role("button", name="Upload").click()
    expect(page.locator("main")).to_contain_text("Requests that name no version get version 1")
    page.get_by_label("Label", exact=True).fill("stable")
    page.get_by_role("button", name="Set label").click()
    expect(page.locator("main")).to_contain_text("Requests by label stable")
    page.get_by_role("button", name="Set label").click()
    page.goto(window.url("/keys"))
    page.get_by_role("link", name=KEY).first.click()
    kid = page.url.rsplit("/", 1)[-1]
    _until_known(house, key)
    assert _predict(house, key)[0] == 200
    page.goto(window.url(f"/jobs?q=model:{MODEL}"))
    ended = page.get_by_role("row").filter(has_text="succeeded").get_by_role("link")
    while not ended.count():  # the projector is a moment behind
        page.reload()
    job = str(ended.first.get_attribute("href")).rsplit("/", 1)[-1]
    page.locator("input[name=job]").first.check()
    page.get_by_role("button", name="Delete…").click()
    page.wait_for_url("**/jobs/-/selections/*")
    selection = page.url.rsplit("/", 1)[-1]
    page.goto(window.url(f"/models/{MODEL}/try"))
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Answer of the front")).to_contain_text("outputs")
    trial = page.url.rsplit("/", 1)[-1]
    page.goto(window.url("/workers/-/hosts"))
    host = str(page.locator("tbody a.row-link").first.get_attribute("href")).rsplit("/", 1)[-1]
    page.goto(window.url("/workers"))
    gpu = str(page.locator("tbody a[href^='/workers/-/devices/']").first.get_attribute("href")).rsplit("/", 1)[-1]
    queue = _make_queue(window, page, kid)
    page.context.close()
    ids = {"job": job, "key": kid, "gpu": gpu, "trial": trial, "selection": selection, "queue": queue}
    return {"model": MODEL, "worker": "worker-1", "host": host, **ids}


def _make_queue(window: Window, page: Page, account: str) -> str:
    """The name of a queue that is made by its form, and whose page tells by itself when it is there."""
    name = f"queue-{MARK}"
    page.goto(window.url("/queues"))
    page.get_by_role("link", name="Create queue").first.click()
    window.confirm_if_asked(page)
    page.get_by_label(re.compile("^Name")).fill(name)
    page.get_by_label("Account").select_option(account)
    page.get_by_label(re.compile("^Sink: most items")).fill("100")
    page.get_by_role("button", name="Create queue").click()
    page.wait_for_url(window.url(f"/queues/{name}"))
    expect(page.locator("[data-live=state]")).to_contain_text("running")
    expect(page.locator("[data-live=sink]")).to_contain_text("of 100")
    return name


def test_a_model_is_pinned_and_unpinned_and_loaded_by_hand_with_the_buttons_of_its_page(
    window: Window, things: dict[str, str]
) -> None:
    page = window.tab()
    page.goto(window.url(f"/models/{things['model']}"))
    page.get_by_text("Load or pin a version").press("Enter")
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.locator("#memory + .state")).to_have_text("pinned")
    page.goto(window.url(f"/workers/{things['worker']}"))
    row = page.get_by_role("row").filter(has_text=things["model"]).filter(has_text="stays: pinned")
    while not row.count():  # the worker's next heartbeat tells it
        page.reload()
    expect(row.get_by_role("button", name="Evict")).to_have_count(0)
    page.goto(window.url(f"/models/{things['model']}"))
    page.get_by_role("button", name="Unpin").click()
    page.locator("dialog[open]").get_by_role("button", name="Unpin").click()
    expect(page.locator("main")).to_contain_text("is not pinned any more")
    page.get_by_text("Load or pin a version").press("Enter")
    page.get_by_label("Host").select_option(index=1)
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.locator("main")).to_contain_text("is to be loaded on")
    page.context.close()


def test_the_page_of_scaling_shows_what_changes_without_a_reload(window: Window, things: dict[str, str]) -> None:
    watching, page = window.tab(), window.tab()
    watching.goto(window.url("/workers/-/scaling"))
    expect(watching.locator("#link")).to_have_attribute("data-link", "live")
    expect(watching.locator("[data-live=models]")).to_contain_text("None.")

    def switch(*, is_on: bool) -> None:
        page.goto(window.url(f"/models/{things['model']}/autoscale"))
        page.get_by_label("Autoscale", exact=True).set_checked(is_on)
        page.get_by_role("button", name="Save").click()
        page.wait_for_url(window.url(f"/models/{things['model']}"))

    switch(is_on=True)
    expect(watching.locator("[data-live=models]")).to_contain_text(things["model"])
    line = watching.locator("[data-live=picture] polyline").first
    expect(line).to_be_attached()
    drawn = line.get_attribute("points") or ""
    expect(line).not_to_have_attribute("points", drawn)
    switch(is_on=False)
    expect(watching.locator("[data-live=models]")).to_contain_text("None.")
    expect(line).to_have_count(0)
    watching.context.close()
    page.context.close()


def test_every_route_with_a_page_is_a_screen(window: Window) -> None:
    page = window.tab()
    named = set(SCREENS) | NO_SCREENS
    found = {name: url for name, url in routes() if not is_endpoint(name) or name in named}
    assert named <= set(found)
    for name, url in found.items():
        answer = page.request.get(window.url(url), max_redirects=0)
        is_page = answer.status != 405 and answer.headers.get("content-type", "").startswith("text/html")
        assert (name in SCREENS) == is_page or name in NO_SCREENS, (name, answer.status)
    page.context.close()


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_board_stands_still_when_its_rows_come(window: Window, things: dict[str, str], width: int) -> None:
    page = window.tab(width=width)
    page.add_init_script(SHIFTS)
    page.goto(window.url("/"))
    expect(page.locator("#link")).to_have_text("live")
    for part in (".lane", "#queues tr", "#workers tr", "#ticker li", "#health .stat:nth-child(6)"):
        expect(page.locator(part).first).to_be_visible()
    shifts = page.evaluate(
        "new Promise((done) => setTimeout(() => done(window.shifts), 1000))"
    )  # the browser's own pace
    assert sum(value for value, _ in shifts) <= 0.01, shifts
    page.context.close()


def test_a_board_whose_socket_says_nothing_opens_another_one(window: Window) -> None:
    page = window.tab()
    opened: list[WebSocketRoute] = []

    def receive(route: WebSocketRoute) -> None:
        opened.append(route)
        if len(opened) > 1:  # the first one is accepted, and its server says nothing
            route.connect_to_server()

    page.route_web_socket(re.compile("/ws/live$"), receive)
    page.goto(window.url("/"))
    expect(page.locator("#link")).to_have_text("live", timeout=30_000)
    expect(page.locator("#unfed")).to_have_count(0)
    assert len(opened) == 2
    page.context.close()


def test_what_has_the_focus_is_never_under_a_bar_on_a_narrow_screen(window: Window, things: dict[str, str]) -> None:
    """A key scrolls as ``focus()`` does, which costs a hundredth; whether keys lead through is seen with them."""
    walked = depth.at(short=focus_all, full=walk_focus)
    page = window.tab(width=360, height=740)
    faults: list[str] = []
    for name, paths in SCREENS.items():
        for path in paths if name != "login" else ():  # it has no bars
            page.goto(window.url(path.format(**things)))
            if name != "confirm-password":
                window.confirm_if_asked(page)
            if name == "live:board":
                expect(page.locator("#workers tr").first).to_be_visible()
            if page.locator(".rail").count():
                page.evaluate(COVERED)
                faults += [f"{path}: {fault}" for fault in walked(page)]
    page.context.close()
    assert faults == []


def test_a_logout_in_one_tab_ends_the_board_in_another_at_once(window: Window) -> None:
    board = window.guest()
    window.log_in(board)  # a session of its own
    expect(board.locator("#link")).to_have_text("live")
    page = board.context.new_page()
    page.goto(window.url("/models"))
    page.locator(".bar details.menu summary").click()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(window.url("/login"))
    expect(board.locator("#link")).to_have_text("logged out", timeout=5_000)
    expect(board.locator("#stale")).to_contain_text("You have been logged out")
    board.context.close()


@pytest.mark.parametrize("width", [360, *(pytest.param(wide, marks=pytest.mark.slow) for wide in (768, 1440))])
def test_every_screen_is_accessible_fits_and_stands_still(window: Window, things: dict[str, str], width: int) -> None:
    """Each screen is loaded once, and looked at in several sizes and themes: neither asks the server for more."""
    looks = LOOKS if width == 360 else [(width, "light"), (width, "dark")]
    page = window.tab(width=width)
    page.add_init_script(SHIFTS)
    faults: list[str] = []
    for name, paths in SCREENS.items():
        for path in paths if name != "login" else ():
            url = window.url(path.format(**things))
            resize(page, width)
            page.goto(url)
            if name != "confirm-password":
                window.confirm_if_asked(page)
            assert page.url == url, f"{url} leads to {page.url}"
            if name == "live:board":
                expect(page.locator(".lane").first).to_be_visible()
            faults += moved(page, f"{path} at {width}")
            page.evaluate(UNFOLD)
            faults += judged(page, path, looks)
    _create_key(window, page, f"to look at {width}", lambda shown: faults.extend(judged(shown, "key-created", looks)))
    page.context.close()
    guest = window.guest(width=width)
    guest.goto(window.url("/login"))
    faults += judged(guest, "/login", looks)
    guest.context.close()
    assert not faults, "\n".join(faults)


def test_a_worker_is_drained_from_the_board_with_a_reason_and_takes_part_again(window: Window, key: str) -> None:
    page = window.tab()
    page.goto(window.url("/"))
    holder = page.locator(".lane a.lane-value").first
    expect(holder).to_have_attribute("href", re.compile("^/workers/worker-[12]$"))
    page.locator("#workers").get_by_role("link", name="worker-2").click()
    page.wait_for_url(window.url("/workers/worker-2"))
    page.get_by_role("button", name="Drain").click()
    page.get_by_label("Reason").fill("a new driver")
    page.locator("#confirm-yes").click()
    asked = page.get_by_role("region", name="What is asked of it")
    expect(asked).to_contain_text("a new driver")
    page.goto(window.url("/"))
    row = page.locator("#workers tr", has_text="worker-2")
    expect(row.locator(".state")).to_have_attribute("data-state", "drained")
    expect(row).to_contain_text("may be stopped now")
    row.get_by_role("link", name="worker-2").click()
    page.get_by_role("button", name="Resume").click()
    page.locator("#confirm-yes").click()
    expect(asked).to_contain_text("take part")
    page.goto(window.url("/"))
    expect(row.locator(".state")).to_have_attribute("data-state", re.compile("held|waiting|idle"))
    page.context.close()


def test_nothing_of_all_this_broke_the_content_security_policy_or_asked_elsewhere(window: Window) -> None:
    assert window.faults == []
