"""What operators see of a fleet that scales: what is wanted and why, replicas, hosts with their agents."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.board import capacity as board
from console.board.queues import Gauge
from console.board.rows import Alarm, Figure
from console.catalog.models import ModelVersion, ServedModel
from console.feed.feed import Feed
from console.feed.health import workers
from console.feed.running import running
from console.feed.scaling import Sample
from console.fleet import capacity, hosts, replicas, services
from console.operators import services as operators
from console.outbox.models import OutboxEntry
from console.undo import services as undo
from signalbox.program.errors import Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import messages, modeldocs, steering
from signalbox.wire.modeldocs import Version
from signalbox.wire.scaling import ClassScale, Host, HostDevice, HostWorker, ModelScale, Scale
from signalbox.wire.workerdocs import Device, Residency
from tests.console.conftest import Call, submit
from tests.rigs.presence import presence

Browser = Callable[[str], Client]
DEVICES = tuple(
    HostDevice(device=Device(id=f"d{n}", kind="cpu", name=f"cpu:{n}", memory_bytes=2**30), class_="t4") for n in (0, 1)
)
AGENT = Host(
    id="gpu-1",
    host="h/boot",
    devices=DEVICES,
    workers=(HostWorker(id="w0", device="d0", state="ready", restarts=2),),
    driver="550.1",
    cuda="12.4",
    disk_bytes=2**40,
    disk_free_bytes=2**39,
    software="1.0",
    beat_at=1_000_000.0,
)
WANTED = Scale(
    classes={"t4": ClassScale(wanted=2, asked=3, actual=1, most=2, reason="no capacity: 3 asked for, at most 2")},
    models={"digits": ModelScale(wanted=3, needed=3, reason="35 jobs wait")},
)
LOADED = Residency(model="digits", version=1, state="ready")


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """A feed that has read what a controller, a host and its worker have told."""
    feed = Feed(Wire())
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    monkeypatch.setattr(feed.scaling, "hosts", lambda: [AGENT])
    monkeypatch.setattr(hosts, "ask", lambda *_: [])
    document = modeldocs.Model(name="digits", versions=(Version(version=1, path="/m"),), replicas=3)
    monkeypatch.setattr(feed.tables, "_models", lambda _: document)
    feed.scaling.scale = WANTED
    feed.view.presence("w0", presence("w0", "d0", models=(LOADED,), token=7, host="h/boot"), 1_000_000.0)
    return feed


@pytest.fixture
def digits(db: None) -> ServedModel:
    model = ServedModel.objects.create(name="digits", base_path="/m", replicas=3, autoscale=True, autoscale_max=4)
    ModelVersion.objects.create(model=model, number=1, path="/m/1", source="path", added_by="tests")
    return model


def test_wanted_and_actual_are_seen_with_their_reasons(
    browser: Browser, call: Callable[[str], Call], feed: Feed, digits: ServedModel
) -> None:
    page = browser("viewer").get("/workers/-/scaling").content.decode()
    assert "no capacity: 3 asked for, at most 2" in page
    assert "35 jobs wait" in page
    assert "3 wanted: 35 jobs wait" in browser("viewer").get("/models/digits").content.decode()
    found: Any = call("viewer")("get", "scaling").json()
    assert found["classes"] == [
        {
            "name": "t4",
            "wanted": 2,
            "asked": 3,
            "actual": 1,
            "there": 2,
            "most": 2,
            "reason": "no capacity: 3 asked for, at most 2",
        }
    ]
    assert (found["models"][0]["name"], found["models"][0]["wanted"], found["is_on"]) == ("digits", 3, True)


def test_a_viewer_s_token_asks_within_a_cluster_for_what_is_wanted_and_for_nothing_else_without_https(
    cast: dict[str, User], feed: Feed, digits: ServedModel, settings: Any
) -> None:
    """As KEDA does: by the name of the Service, in plain HTTP, with no header of a proxy."""
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["console.example", "release-console"]
    _, text = operators.create_token(Actor(user=cast["viewer"], via="tests"), "keda", operators.TOKEN_DAYS_MAX)
    keda = Client(headers={"Authorization": f"Bearer {text}", "Host": "release-console:8000"})
    answer = keda.get("/api/scaling")
    assert (answer.status_code, answer.json()["classes"][0]["asked"]) == (200, 3)
    assert keda.get("/api/models").status_code == 301
    for path in ("/api/scaling/", "/api/scaling/x"):
        assert keda.get(path).status_code == 301, path
    stranger = Client(headers={"Host": "release-console:8000"})
    assert stranger.get("/api/scaling").status_code == 401
    assert keda.get("/api/scaling", headers={"Host": "other:8000"}).status_code == 400


def test_without_anything_that_scales_each_device_shall_have_workers(feed: Feed, digits: ServedModel) -> None:
    feed.scaling.scale = None
    found = capacity.standing()
    assert (found.is_on, found.classes[0].wanted, found.picture) == (False, 2, None)
    assert found.models[0].reason == "not decided yet; does the controller run?"
    ServedModel.objects.update(replicas=0)
    assert capacity.standing().models[0].reason == "an operator has set its replicas to 0"


def test_without_nats_it_is_said_not_to_be_known(browser: Browser, call: Callable[[str], Call], db: None) -> None:
    with pytest.raises(Unavailable):
        capacity.standing()
    assert "not known now" in browser("viewer").get("/workers/-/scaling").content.decode()
    assert call("viewer")("get", "scaling").status_code == 503


def test_the_board_has_a_figure_and_an_alarm_while_there_is_no_capacity(feed: Feed) -> None:
    feed.scaling.age(1_000_000.0)
    feed.scaling.age(1_000_001.0)
    feed.scaling.age(1_000_005.0)
    row = feed.view.topics.topics["health"].rows["scaling"]
    assert row == board.figure(WANTED, feed.scaling.devices())
    assert [tuple(one) for one in feed.scaling.history] == [(1_000_000.0, 2, 1), (1_000_005.0, 2, 1)]
    (alarm,) = board.alarms(WANTED).values()
    assert alarm.text == "t4: no capacity: 3 asked for, at most 2."
    feed.scaling.scale = None
    feed.scaling.age(1_000_006.0)
    assert "scaling" not in feed.view.topics.topics["health"].rows
    assert not feed.scaling.history


def test_a_fleet_that_goes_to_no_worker_and_has_its_first_again_has_lost_none(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, view = 1_000_000.0, feed.view
    view.model("digits", modeldocs.Model(name="digits"), now)

    def alarms(host: Host) -> dict[str, Any]:
        monkeypatch.setattr(feed.scaling, "hosts", lambda: [host])
        feed.scaling.age(now)
        view.age(now, is_blind=False)
        return view.topics.topics["alarms"].rows

    kept = AGENT.workers[0]
    feed.scaling.scale = replace(WANTED, classes={"t4": ClassScale(wanted=0)})
    alarms(AGENT)
    view.presence("w0", presence("w0", "d0", state="draining", host="h/boot"), now)
    assert "drained" not in alarms(replace(AGENT, workers=(replace(kept, state="draining"),)))
    view.presence("w0", None, now)  # that it has ended the agent has not told yet, but that it ends it
    assert workers(view.workers(), view.wanted) == Figure("Workers", "ok", "0/0", "none is wanted")
    view.presence("w0", presence("w0", "d0", host="h/boot"), now)
    alarms(AGENT)
    view.presence("w0", None, now)
    alarms(AGENT)
    assert workers(view.workers(), view.wanted) == Figure("Workers", "failed", "0/1")
    alarms(replace(AGENT, workers=()))
    assert workers(view.workers(), view.wanted) == Figure("Workers", "ok", "0/0", "none is wanted")

    view.queues.gauge("digits", Gauge(3, now), now)
    assert alarms(replace(AGENT, workers=()))["unserved:digits"].level == "error"
    found = alarms(replace(AGENT, workers=(replace(kept, state="starting"),)))["unserved:digits"]
    assert (found.level, found.text) == ("warning", "digits: 3 jobs wait and a worker is being started.")
    view.presence("w0", presence("w0", "d0", host="h/boot"), now)
    view.presence("w0", None, now)
    found = alarms(replace(AGENT, workers=(replace(kept, state="waiting", why="ended with 1"),)))["unserved:digits"]
    assert found.text == "digits: 3 jobs wait and no worker runs."
    assert [one.state for one in view.workers()] == ["lost"], "its agent has not ended it"


def test_alarms_heed_at_once_what_agents_say(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    now, view = 1_000_000.0, feed.view
    view.model("digits", modeldocs.Model(name="digits"), now)
    view.presence("w0", presence("w0", "d0", state="starting", host="h/boot"), now)
    view.queues.gauge("digits", Gauge(3, now), now)
    begun = replace(AGENT, workers=(replace(AGENT.workers[0], state="starting"),))
    monkeypatch.setattr(feed.scaling, "hosts", lambda: [begun])
    feed._each_second(now)
    alarm = view.topics.topics["alarms"].rows["unserved:digits"]
    assert isinstance(alarm, Alarm)
    assert alarm.level == "warning"


def test_the_page_looks_again_when_something_stands_otherwise_and_at_each_step_of_its_picture(
    browser: Browser, feed: Feed, digits: ServedModel
) -> None:
    def told(now: float) -> float:
        feed.scaling.age(now)
        row = feed.view.topics.topics["scaling"].rows["fleet"]
        assert isinstance(row, board.FleetStanding)
        return row.at

    assert [told(0.0), told(1.0), told(5.0)] == [0.0, 0.0, 5.0]
    feed.scaling.scale = Scale(classes=WANTED.classes, models=WANTED.models, at=6.0)
    assert told(6.0) == 5.0
    feed.scaling.scale = Scale(classes=WANTED.classes)
    assert told(7.0) == 7.0
    feed.view.presence("w1", presence("w1", "d1", host="h/boot"), 8.0)
    assert told(8.0) == 8.0
    page = browser("viewer").get("/workers/-/scaling").content.decode()
    assert 'data-topic="scaling"' in page
    assert re.findall(r'data-live="(\w+)"', page) == ["error", "picture", "classes", "models"]
    feed.scaling.scale = None
    assert [told(9.0), told(30.0)] == [9.0, 9.0]


def test_the_picture_has_steps_of_what_was_wanted_and_what_there_was() -> None:
    found = capacity.picture([Sample(0.0, 0, 0), Sample(5.0, 4, 0), Sample(10.0, 4, 2)])
    assert found is not None
    assert found.wanted == "0.0,156.0 450.0,156.0 450.0,4.0 900.0,4.0"
    assert found.actual == "0.0,156.0 450.0,156.0 900.0,156.0 900.0,80.0"
    assert (found.most, found.since) == (4, "10 s")
    assert found._replace(span_s=895.0).since == "15 min"


def test_replicas_are_named_by_their_rank_and_one_device_is_warned_of(
    browser: Browser, call: Callable[[str], Call], feed: Feed, digits: ServedModel
) -> None:
    found: Any = call("viewer")("get", "models/digits/replicas").json()
    assert [(row["name"], row["host"], row["worker"], row["is_ready"]) for row in found["replicas"]] == [
        ("digits-0", "h", "w0", True)
    ]
    assert found["warnings"] == [
        "digits is placed on d0 of host h alone: while that is away, its jobs wait. Two replicas go on."
    ]
    page = browser("viewer").get("/models/digits").content.decode()
    assert "digits-0" in page
    feed.view.presence("w1", presence("w1", "d1", host="h/boot"), 1_000_000.0)
    rows = replicas.of("digits")
    assert rows is not None
    assert {(row.worker, row.state) for row in rows} == {("w0", "ready"), ("w1", "not loaded")}
    assert replicas.warnings("digits", rows) == [
        "All replicas of digits are on host h: while that is away, its jobs wait."
    ]
    feed.view.presence("w2", presence("w2", "d2", host="other/boot"), 1_000_000.0)
    assert replicas.warnings("digits", replicas.of("digits")) == []


def test_a_host_shows_its_agent_and_is_drained_and_taken_back(
    browser: Browser, call: Callable[[str], Call], feed: Feed, admin: Actor
) -> None:
    client = browser("operator")
    assert "2 devices, 1 worker" in client.get("/workers/-/hosts").content.decode()
    page = client.get("/workers/-/hosts/h").content.decode()
    assert "driver 550.1, CUDA 12.4" in page
    assert "started again 2 times" in page
    agent: Any = call("viewer")("get", "hosts/h").json()["agent"]
    assert (agent["devices"][0]["device_class"], agent["workers"][0]["state"]) == ("t4", "ready")
    assert submit(client, "/workers/-/hosts/h/drain", {"draining": "1", "reason": "disk"}).status_code == 302
    entry = OutboxEntry.objects.latest("pk")
    assert entry.key == "host.gpu-1"
    assert messages.decode(steering.Desired, entry.body).is_draining
    assert "Resume" in client.get("/workers/-/hosts/h").content.decode()
    undo.undo(admin, AuditEntry.objects.get(act="workers.drain"))
    assert not messages.decode(steering.Desired, OutboxEntry.objects.latest("pk").body).is_draining
    assert call("operator")("put", "hosts/gone/drain", {"on": True}).status_code == 404
    assert services.drain_host(admin, "h", is_draining=True).is_on
