"""What a list is asked for: read from a URL's query or from a filter, and refused by name."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.admission.submission import read_options
from gateway_plugin.api.jobs.listing import MOST_LISTED, PARAMETERS, parameters_of, query_of
from signalbox.program.errors import InvalidRequest
from signalbox.wire.asks import JobQuery


def asked(query: str) -> JobQuery:
    return query_of(parameters_of(f"/v1/jobs?{query}"), PARAMETERS, "query")


def test_a_url_and_a_filter_choose_the_same_jobs() -> None:
    from_url = asked(
        "state=failed,queued&state=expired&model=half&tag=run%2F7&tag=nightly&error=No+such"
        "&since=2026-11-29T05:00:00Z&until=2026-11-29T07:00:00.5%2B01:00&sync=true"
    )
    from_body = query_of(
        {
            "state": ["failed", "queued", "expired"],
            "model": "half",
            "tag": ["run/7", "nightly"],
            "error": "No such",
            "since": "2026-11-29T05:00:00Z",
            "until": "2026-11-29T07:00:00.5+01:00",
            "sync": True,
        }
    )
    assert from_url == from_body
    assert from_url.states == ("failed", "queued", "expired")
    assert from_url.tags == ("run/7", "nightly")
    assert (from_url.since, from_url.until) == (1_795_928_400.0, 1_795_932_000.5)
    assert from_url.with_sync


def test_a_list_without_parameters_is_of_all_jobs_but_synchronous_predictions() -> None:
    assert asked("") == JobQuery()
    assert asked("limit=200&cursor=1.000000_").limit == MOST_LISTED


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("stat=failed", "stat"),
        ("state=happy", "state"),
        ("state=", "state"),
        ("model=a/b", "model"),
        ("tag=a b", "tag"),
        ("tag=", "tag"),
        ("&".join(f"tag=t{number}" for number in range(9)), "tag"),
        (f"error={'x' * 201}", "error"),
        ("error=a%00b", "error"),
        ("since=yesterday", "since"),
        ("since=2026-11-29T05:00:00", "since"),
        ("since=2026-11-29T05:00:00+01:00", "since"),
        ("since=1969-01-01T00:00:00Z", "since"),
        ("until=9999-12-31T23:59:59-14:00", "until"),
        ("until=2026-02-30T00:00:00Z", "until"),
        ("sync=yes", "sync"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=%D9%A1", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=a&cursor=b", "cursor"),
    ],
)
def test_what_a_list_does_not_take_is_refused_by_name(query: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        asked(query)
    assert refused.value.facts["field"] == field


def test_an_unknown_parameter_is_told_the_nearest_known_one() -> None:
    with pytest.raises(InvalidRequest, match="The query has an unknown parameter") as refused:
        asked("stat=failed")
    assert refused.value.facts["nearest"] == "state"
    with pytest.raises(InvalidRequest, match="more than"):
        asked("&".join(f"tag={number}" for number in range(200)))
    with pytest.raises(InvalidRequest, match="The filter has an unknown parameter"):
        query_of({"limit": "5"})


@given(st.dictionaries(st.sampled_from(PARAMETERS), st.one_of(st.none(), st.booleans(), st.integers(), st.text())))
def test_no_filter_is_too_strange_to_be_refused_politely(given_: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidRequest):
        query_of(given_, PARAMETERS)


@pytest.mark.parametrize(
    "tags", ["nightly", {"a": 1}, [1], [""], ["a b"], ["-a"], ["x" * 65], ["ü"], ["a\n"], list("abcdefghi"), [["a"]]]
)
def test_tags_that_a_job_cannot_have_are_refused_with_what_it_can(tags: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_options({"tags": tags})
    assert refused.value.facts["field"] == "tags"


def test_tags_are_kept_in_order_each_once() -> None:
    assert read_options({"tags": ["b", "a=1/2:3.4_-", "b"], "deadline_s": 5}).tags == ("b", "a=1/2:3.4_-")
    assert read_options({"tags": None}).tags == ()
