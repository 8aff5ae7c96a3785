"""Calls and refusals by key: what gateways report is added up, kept for so long, and read over a span."""

from datetime import UTC, datetime, timedelta

import pytest

from console.accounts.rights import Actor
from console.keys import figures, services, usage
from console.keys.models import KeyUse
from console.keys.services import KeyGrant
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


def test_minutes_are_kept_for_hours_and_hours_for_a_month(key: str) -> None:
    for ago in (timedelta(days=40), timedelta(days=2), timedelta(hours=4), timedelta(0)):
        report({key: 1}, at=NOON - ago)
    kept = {(use.step_s, use.at) for use in KeyUse.objects.all()}
    start = round(datetime(2026, 11, 20, 11, tzinfo=UTC).timestamp())
    hours = [start - 2 * 86_400, start - 4 * 3600, start]
    assert kept == {(3600, at) for at in hours} | {(60, start + 59 * 60)}
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
