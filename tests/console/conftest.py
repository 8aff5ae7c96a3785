"""The console's cast and stage: four operators, browsers with CSRF checks on, a database file, a pepper."""

import functools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from channels.db import database_sync_to_async
from django.conf import settings as django_settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group
from django.db import connections
from django.test import Client
from msgspec.structs import replace

from console.accounts.acts import ROLES
from console.accounts.models import User
from console.accounts.rights import Actor
from console.catalog import inspection
from console.catalog.inspection import Inspection, Verdict
from console.config import ConsoleSettings
from console.operators import services as operators
from console.operators import throttle
from console.operators.hashing import BoundedArgon2
from signalbox.wire.modeldocs import Signature, TensorSpec

T = TypeVar("T")
Call = Callable[..., Any]
PASSWORD = "correct horse battery staple"
FOUND = Inspection(
    signatures={
        "serving_default": Signature(
            inputs={"x": TensorSpec(dtype="float32", shape=(-1,))},
            outputs={"y": TensorSpec(dtype="float32", shape=(-1,))},
        )
    },
    size_bytes=100,
    digest="d" * 64,
    verdict=Verdict(forbidden={}, unknown=[]),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that gets the database by a fixture is marked too: ``-m django_db`` is everything that touches it."""
    for item in items:
        by_fixture = {"db", "transactional_db"} & set(getattr(item, "fixturenames", ()))
        if by_fixture and item.get_closest_marker("django_db") is None:
            item.add_marker("django_db")


# A hash takes 100 MiB and a core on purpose: in tests it takes little. Programs of their own hash as they do.
BoundedArgon2.time_cost, BoundedArgon2.memory_cost, BoundedArgon2.parallelism = 1, 8, 1


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A database file rather than memory: programs under test use threads, each with a connection."""
    database = connections["default"].settings_dict
    if "sqlite3" in database["ENGINE"]:
        database["TEST"]["NAME"] = str(tmp_path_factory.mktemp("database") / "console.sqlite3")


@pytest.fixture(autouse=True)
def console(tmp_path: Path, settings: Any) -> Iterator[ConsoleSettings]:
    """Settings of this test: no NATS, a pepper, and a repository of its own."""
    settings.CONSOLE = replace(
        django_settings.CONSOLE,
        nats_url="nats://127.0.0.1:1",  # nobody listens there; a developer's own NATS may at the usual port
        key_pepper="pepper of the tests",
        data_dir=str(tmp_path / "console"),
        repository_dir=str(tmp_path / "models"),
    )
    yield settings.CONSOLE
    connections.close_all()


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wait after failed logins outlasts a test, on however busy a machine."""
    monkeypatch.setattr(throttle, "FIRST_S", throttle.LONGEST_S)


@pytest.fixture
def cast(db: None) -> dict[str, User]:
    """One operator per role, named after it."""
    people = {}
    for role in ROLES:
        user = User.objects.create(username=role.replace(" ", "-"), password=_hashed())
        user.groups.set([Group.objects.get(name=role)])
        people[role] = user
    return people


@functools.cache
def _hashed() -> str:
    return make_password(PASSWORD)


@pytest.fixture
def admin(cast: dict[str, User]) -> Actor:
    """The admin as an actor."""
    return Actor(user=cast["admin"], via="tests")


@pytest.fixture
def browser(cast: dict[str, User]) -> Callable[[str], Client]:
    """A logged-in browser of a role, with CSRF checks as in production."""

    def open_one(role: str) -> Client:
        client = Client(enforce_csrf_checks=True)
        client.force_login(cast[role])
        return client

    return open_one


@pytest.fixture
def call(cast: dict[str, User]) -> Callable[[str], Call]:
    """A program with the token of a role."""

    def as_role(role: str) -> Call:
        actor = Actor(user=cast[role], via="tests")
        _, text = operators.create_token(actor, "test", 1)
        client = Client(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {text}"})

        def send(method: str, path: str, body: Any = None) -> Any:
            sent = () if body is None else (body,)
            return getattr(client, method)(f"/api/{path}", *sent, content_type="application/json")

        return send

    return as_role


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base folder with versions 1 and 2 whose content is not looked into."""
    monkeypatch.setattr(inspection, "inspect", lambda _: FOUND)
    for number in ("1", "2", "notes"):
        folder = tmp_path / "digits" / number
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(b"x")
    return tmp_path / "digits"


def submit(client: Client, url: str, data: dict[str, Any] | None = None, **extra: Any) -> Any:
    """A form as a browser sends it: with the CSRF token of its cookie."""
    if django_settings.CSRF_COOKIE_NAME not in client.cookies:
        client.get("/settings")
    token = client.cookies[django_settings.CSRF_COOKIE_NAME].value
    return client.post(url, {**(data or {}), "csrfmiddlewaretoken": token}, **extra)


def in_thread(act: Callable[..., T], *args: Any, **kwargs: Any) -> Coroutine[Any, Any, T]:
    """Database work from an asynchronous test."""
    run: Coroutine[Any, Any, T] = database_sync_to_async(act)(*args, **kwargs)
    return run
