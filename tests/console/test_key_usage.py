"""Calls and refusals by key: what gateways report is added up, kept for so long, and read over a span."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from console.accounts.rights import Actor
from console.keys import figures, services, usage
from console.keys.models import KeyUse
from console.keys.services import KeyGrant
from console.rollups.models import Minute
from signalbox.bus.client import Message
from signalbox.wire.messages import header
from signalbox.wire.names import KEY_USE, Header
from signalbox.wire.used import KeyCalls
from tests.console.conftest import in_thread

NOON = datetime(2026, 11, 20, 12, 0, 10, tzinfo=UTC)
"""When a report comes: of calls of the minute before noon."""


def report(calls: dict[str, int], refused: dict[str, dict[str, int]] | None = None, *, at: datetime = NOON) -> None:
    """What one gateway reports."""
    usage.store(sorted(calls), KeyCalls(calls=calls, refused=refused or {}), at)


@pytest.fixture
def key(admin: Actor) -> str:
    return services.create(admin, KeyGrant(name="web"))[0].pk


def test_two_gateways_add_up_and_a_key_that_is_not_known_is_left_out(key: str) -> None:
    for _ in range(2):
        report({key: 5, "unknown": 7}, {key: {"limit_exceeded:rate": 2, "forbidden": 1}})
    report({key: 1}, at=NOON + timedelta(minutes=2))
    found = figures.of_key(key, figures.SPANS["hour"], NOON.timestamp() + 120)
    assert (found.calls, found.refused) == (11, 6)
    assert list(found.reasons.items()) == [("limit_exceeded:rate", 4), ("forbidden", 2)]
    assert [(step.calls, step.refused) for step in found.steps[-4:]] == [(10, 6), (0, 0), (1, 0), (0, 0)]
    assert found.steps[-4].at == datetime(2026, 11, 20, 11, 59, tzinfo=UTC).timestamp()
    assert not KeyUse.objects.exclude(key_id=key).exists()


@pytest.mark.parametrize(("span", "steps", "index"), [("hour", 60, -2), ("day", 24, -2), ("month", 30, -1)])
def test_each_span_has_its_steps_and_ends_now(key: str, span: str, steps: int, index: int) -> None:
    report({key: 3})
    found = figures.of_key(key, figures.SPANS[span], NOON.timestamp())
    assert (len(found.steps), found.steps[index].calls, found.calls) == (steps, 3, 3)


def test_an_accounts_figures_are_those_of_all_its_keys_and_of_no_other(admin: Actor, key: str) -> None:
    second = services.create(admin, KeyGrant(name="app", account=key))[0].pk
    other = services.create(admin, KeyGrant(name="other"))[0].pk
    report({key: 1, second: 2, other: 40}, {second: {"forbidden": 1}})
    day = figures.SPANS["day"]
    found = figures.of_account(key, day, NOON.timestamp())
    assert (found.calls, found.refused) == (3, 1)
    everybody = figures.by_account(day, NOON.timestamp())
    assert {kid: (one.calls, one.refused) for kid, one in everybody.items()} == {key: (3, 1), other: (40, 0)}


def test_minutes_are_kept_for_hours_hours_for_days_and_days_for_a_month(key: str) -> None:
    for ago in (timedelta(days=40), timedelta(days=3), timedelta(hours=4), timedelta(0)):
        report({key: 1}, at=NOON - ago)
    kept = {(use.step_s, use.at) for use in KeyUse.objects.all()}
    day = round(datetime(2026, 11, 20, tzinfo=UTC).timestamp())
    hour = day + 11 * 3600
    assert kept == {(86_400, day - 3 * 86_400), (86_400, day), (3600, hour - 4 * 3600), (3600, hour), (60, hour + 3540)}
    assert figures.of_key(key, figures.SPANS["month"], NOON.timestamp()).calls == 3


def test_what_no_gateway_can_have_counted_is_not_stored(key: str) -> None:
    report({key: -1}, {key: {"nul\0": 1, "x" * 200: 1, "many": 2**40}})
    assert set(KeyUse.objects.values_list("reason", flat=True)) == {"x" * 60}


@pytest.mark.django_db(transaction=True)
async def test_a_report_is_read_with_calls_and_without(admin: Actor) -> None:
    key, _ = await in_thread(services.create, admin, KeyGrant(name="web"))
    ids = f'["{key.pk}"]'.encode()
    counted = header(KeyCalls(calls={key.pk: 4}, refused={}))
    for head in ("", f"{Header.CALLS}: {counted}\r\n", f"{Header.CALLS}: nonsense\r\n"):
        # Without the header: of a gateway of an older release.
        await usage.receive(Message(KEY_USE, "", f"NATS/1.0\r\n{head}\r\n".encode(), ids))
    assert await in_thread(lambda: set(KeyUse.objects.values_list("calls", flat=True))) == {4}


def test_accounts_are_listed_by_what_they_used_and_their_pages_show_it(
    browser: Callable[[str], Client], call: Callable[[str], Any], admin: Actor
) -> None:
    little, much = (services.create(admin, KeyGrant(name=name))[0].pk for name in ("little", "much"))
    now = datetime.now(UTC)
    report({little: 5, much: 1500}, {much: {"limit_exceeded:rate": 1200, "new_code": 1}}, at=now)
    hour = round(now.timestamp()) // 3600 * 3600
    Minute.objects.create(
        minute=hour,
        span_s=3600,
        model="m",
        version=1,
        account_id=little,
        succeeded=2,
        bytes_in=2048,
        device_ms=90_000.0,
    )
    client = browser("viewer")

    def order(sort: str) -> list[str]:
        page = client.get(f"/accounts?span=month&sort={sort}").content.decode()
        return re.findall(r'class="row-link"[^>]*>(\w+)<', page)

    assert [order(sort) for sort in ("device", "calls", "name", "nonsense")] == [
        ["little", "much"],
        ["much", "little"],
        ["little", "much"],
        ["little", "much"],
    ]
    page = client.get(f"/accounts/{little}?span=month").content.decode()
    for shown in ('data-testid="calls">5<', "2.0 KiB", "1 min 30 s", "As a table"):
        assert shown in page
    page = client.get(f"/keys/{much}?span=month").content.decode()
    for shown in ('data-testid="calls">1\N{NARROW NO-BREAK SPACE}500<', "The rate of the key was reached.", "new_code"):
        assert shown in page
    assert "No gateway has reported a call" not in page
    told = call("viewer")("get", f"keys/{much}/use?span=month").json()
    assert (told["calls"], told["refused"], told["reasons"]) == (
        1500,
        1201,
        {"limit_exceeded:rate": 1200, "new_code": 1},
    )
    assert sum(step["calls"] for step in told["steps"]) == 1500
    told = call("viewer")("get", f"accounts/{little}/use?span=month").json()
    assert (told["jobs"], told["device_s"], sum(step["jobs"] for step in told["steps"])) == (2, 90.0, 2)
    told = call("viewer")("get", "use?span=month").json()
    assert [(one["name"], one["calls"], one["jobs"]) for one in told] == [("little", 5, 2), ("much", 1500, 0)]
    assert call("viewer")("get", "use?span=year").status_code == 400
