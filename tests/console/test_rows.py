"""How many rows the console keeps, for a Prometheus that scrapes the controller."""

import math

import pytest
from django.db import OperationalError, connection

from console.controller import rows
from signalbox.program.metrics import REGISTRY
from tests.console.conftest import in_thread
from tests.console.test_jobs import make

pytestmark = pytest.mark.django_db(transaction=True)


def reported(name: str, table: str = "") -> float | None:
    return REGISTRY.get_sample_value(name, {"table": table} if table else {})


async def test_rows_of_each_table_and_bytes_of_all_are_told() -> None:
    def fill() -> None:
        for number in range(3):
            make(number)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")  # PostgreSQL counts in its own time

    await in_thread(fill)
    await rows.measure()
    jobs = reported("signalbox_console_rows", "jobs_job") or 0
    assert jobs == 3 or (jobs > 3 and connection.vendor == "postgresql")  # which counts about
    assert reported("signalbox_console_rows", "audit_auditentry") == 0
    assert (reported("signalbox_console_database_bytes") or 0) > 10_000


async def test_nothing_is_told_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    await rows.measure()

    def away() -> None:
        raise OperationalError

    monkeypatch.setattr(rows, "_count", away)
    await rows.measure()
    assert reported("signalbox_console_rows", "jobs_job") is None
    assert math.isnan(reported("signalbox_console_database_bytes") or 0.0)
