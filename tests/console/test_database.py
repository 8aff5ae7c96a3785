"""The database's URL: TLS is passed on, nothing is ignored, and no lock is waited for for long."""

from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.utils import ConnectionHandler

from console import settings
from signalbox.program.errors import Misconfigured
from tests.console.conftest import in_thread
from tests.console.test_bootstrap import run

URL = "postgresql://u:p%3Fss@db.example:5433/console"


def parameters(url: str) -> dict[str, Any]:
    """What Django gives to libpq."""
    found: dict[str, Any] = ConnectionHandler({"default": settings._database(url)})["default"].get_connection_params()
    return found


def test_the_tls_of_the_url_reaches_the_driver() -> None:
    plain = parameters(URL)
    assert (plain["host"], plain["port"], plain["password"]) == ("db.example", "5433", "p?ss")
    assert not {"sslmode", "sslrootcert"} & plain.keys()
    sealed = parameters(f"{URL}?sslmode=verify-full&sslrootcert=%2Fetc%2Fdb%20ca.pem")
    assert (sealed["sslmode"], sealed["sslrootcert"]) == ("verify-full", "/etc/db ca.pem")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sslmod=verify-full", "only sslmode and sslrootcert"),
        ("sslmode=verify-full&sslkey=x", "only sslmode and sslrootcert"),
        ("hush-hush@db/console", "only sslmode and sslrootcert"),
        ("sslmode=verify_full", "sslmode is one of disable, allow"),
        ("sslmode=", "sslmode is one of"),
        ("sslmode=require&sslmode=disable", "once each"),
        ("sslrootcert=", "a file of certificates"),
    ],
)
def test_what_is_not_understood_is_refused_and_not_shown(query: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words) as refused:
        settings._database(f"{URL}?{query}")
    assert "SIGNALBOX_CONSOLE_DATABASE_URL" in refused.value.public_message
    assert "hush" not in refused.value.public_message


def test_the_console_does_not_start_on_a_url_it_does_not_understand(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", SIGNALBOX_CONSOLE_DATABASE_URL=f"{URL}?sslmode=always")
    assert done.returncode == 2
    assert "sslmode is one of" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lock_is_not_waited_for_for_ever() -> None:
    assert parameters(URL)["options"] == "-c lock_timeout=5000"
    local = ConnectionHandler({"default": settings._database("")})["default"]
    assert local.get_connection_params()["timeout"] == 20


@pytest.mark.skipif("sqlite" not in settings.DATABASES["default"]["ENGINE"], reason="of SQLite")
async def test_a_program_keeps_its_connection_to_the_file(transactional_db: None) -> None:
    """The last connection to close the file writes the whole log into it and syncs, beside a NATS that syncs jobs."""

    def opened() -> Any:
        connection.ensure_connection()
        return connection.connection

    first = await in_thread(opened)
    assert await in_thread(opened) is first
