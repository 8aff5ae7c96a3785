"""Saved views of lists, and the switch of single-key shortcuts: pages, REST, rights, audit."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.views import services
from console.views.models import SavedView
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest, NotFound
from tests.console.conftest import submit

Browser = Callable[[str], Client]


def of(cast: dict[str, User], role: str) -> Actor:
    return Actor(user=cast[role], via="tests")


def test_a_view_is_saved_from_its_list_shown_above_it_and_removed(browser: Browser) -> None:
    client = browser("viewer")
    form = {"of_list": "jobs", "name": "Broken digits", "query": "q=model%3Adigits&state=failed&before=1_x"}
    answer = submit(client, "/views/save", form)
    assert (answer.status_code, answer["Location"]) == (302, "/jobs?q=model%3Adigits&state=failed")
    page = client.get(answer["Location"]).content.decode()
    assert 'aria-current="true">Broken digits' in page
    assert "Remove view Broken digits" in page
    assert "Remove view" not in client.get("/jobs").content.decode()
    assert "Broken digits" not in client.get("/models").content.decode()
    view = SavedView.objects.get()
    assert submit(client, f"/views/{view.pk}/remove")["Location"] == "/jobs"
    assert not SavedView.objects.exists()
    written = AuditEntry.objects.filter(target_kind="view")
    assert [(row.act, row.result) for row in written] == [("views.own", "done")] * 2


def test_a_shared_view_is_seen_by_all_and_its_changes_stand_in_the_audit(cast: dict[str, User]) -> None:
    view = services.save(of(cast, "operator"), "audit", "Refusals", "result=refused", is_shared=True)
    services.save(of(cast, "operator"), "audit", "Mine", "")
    assert [one.name for one in services.seen_by(cast["viewer"], "audit")] == ["Refusals"]
    services.save(of(cast, "operator"), "audit", "Refusals", "result=refused&at=<1d", is_shared=True)
    newest = AuditEntry.objects.filter(act="views.share").latest("pk")
    assert ("query", "result=refused", "result=refused&at=%3C1d") in newest.changes
    with pytest.raises(Forbidden):
        services.remove(of(cast, "viewer"), view.pk)
    services.remove(of(cast, "admin"), view.pk)  # may share, so may remove
    assert AuditEntry.objects.filter(act="views.share", result="refused", actor_name="viewer").exists()


def test_a_viewer_shares_nothing_and_nobody_sees_anothers_own_view(cast: dict[str, User]) -> None:
    with pytest.raises(Forbidden):
        services.save(of(cast, "viewer"), "jobs", "all", "", is_shared=True)
    view = services.save(of(cast, "viewer"), "jobs", "all", "")
    with pytest.raises(NotFound):
        services.remove(of(cast, "admin"), view.pk)
    assert not services.seen_by(cast["admin"]).exists()


@pytest.mark.parametrize(
    ("of_list", "name", "query"),
    [
        ("settings", "x", ""),
        ("jobs", " ", ""),
        ("jobs", "x" * 61, ""),
        ("jobs", "x", "q=" + "x" * 2000),
        ("jobs", "x", "q=" + "é" * 900),
        ("jobs", "x", "&".join(f"a{number}=1" for number in range(21))),
    ],
)
def test_what_is_no_view_is_refused(cast: dict[str, User], of_list: str, name: str, query: str) -> None:
    with pytest.raises(InvalidRequest):
        services.save(of(cast, "viewer"), of_list, name, query)


def test_a_list_says_itself_that_its_filter_is_too_long(browser: Browser) -> None:
    page = browser("viewer").get("/jobs", {"q": "x" * 2001})
    assert page.status_code == 400
    assert b"at most 2000 characters" in page.content
    assert b"Save view" in page.content


def test_an_operator_has_a_bounded_number_of_views(cast: dict[str, User]) -> None:
    SavedView.objects.bulk_create(
        SavedView(owner=cast["viewer"], of_list="jobs", name=f"view {number}") for number in range(services.MOST_VIEWS)
    )
    with pytest.raises(Conflict):
        services.save(of(cast, "viewer"), "jobs", "one more", "")
    assert services.save(of(cast, "viewer"), "jobs", "view 3", "q=x").query == "q=x"
    services.save(of(cast, "admin"), "jobs", "one more", "")


def test_views_over_rest(call: Any) -> None:
    api = call("operator")
    made = api("post", "views", {"list": "models", "name": "Failed", "query": "state=failed", "is_shared": True})
    assert (made.status_code, made.json()["query"]) == (201, "state=failed")
    (shown,) = call("viewer")("get", "views").json()
    assert (shown["list"], shown["owner"], shown["is_shared"]) == ("models", "operator", True)
    assert api("post", "views", {"list": "nothing", "name": "x"}).status_code == 400
    assert api("delete", f"views/{shown['id']}").json()["name"] == "Failed"
    assert api("delete", f"views/{shown['id']}").status_code == 404
    assert api("delete", "views/thing").status_code == 400


def test_single_keys_are_switched_off_for_an_operator_and_stay_off(browser: Browser) -> None:
    client = browser("viewer")
    assert 'data-shortcuts="off"' not in client.get("/models").content.decode()
    assert submit(client, "/settings/shortcuts", {"on": "0"}).status_code == 302
    assert 'data-shortcuts="off"' in client.get("/models").content.decode()
    assert 'data-shortcuts="off"' not in browser("admin").get("/models").content.decode()
    submit(client, "/settings/shortcuts", {"on": "1"})
    rows = AuditEntry.objects.filter(act="views.own")
    assert [row.changes for row in rows] == [[("has_shortcuts", False, True)], [("has_shortcuts", True, False)]]
