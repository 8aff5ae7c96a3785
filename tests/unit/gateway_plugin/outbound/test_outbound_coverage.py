"""Whose ends go out."""

import pytest

from gateway_plugin.outbound.coverage import Coverage
from signalbox.wire.outbound import Subscription, Webhook


@pytest.mark.parametrize(
    ("account", "model", "covered"),
    [
        ("", "", {("a", "m"), ("a", "n"), ("b", "m"), ("", "m")}),
        ("a", "", {("a", "m"), ("a", "n")}),
        ("", "m", {("a", "m"), ("b", "m"), ("", "m")}),
        ("a", "m", {("a", "m")}),
    ],
)
def test_a_subscription_covers_an_account_a_model_both_or_all(
    account: str, model: str, covered: set[tuple[str, str]]
) -> None:
    every = {("a", "m"), ("a", "n"), ("b", "m"), ("", "m")}
    for coverage in (
        Coverage([Subscription(id="s", account_id=account, model=model)], []),
        Coverage([], [Webhook(id="w", account_id=account, model=model, url="https://x")]),
    ):
        assert {pair for pair in every if coverage.covers(*pair)} == covered
        assert coverage.is_watched


def test_what_is_not_enabled_covers_nothing() -> None:
    coverage = Coverage([Subscription(id="s", is_enabled=False)], [Webhook(id="w", is_enabled=False)])
    assert not coverage.covers("a", "m")
    assert not coverage.is_watched


def test_a_webhook_of_jobs_that_name_it_covers_no_other_and_is_watched_for() -> None:
    coverage = Coverage([], [Webhook(id="w", account_id="a", is_for_jobs=True)])
    assert not coverage.covers("a", "m")
    assert coverage.is_watched
