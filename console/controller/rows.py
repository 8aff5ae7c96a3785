"""Metrics of the console's tables: rows and bytes."""

import asyncio
from typing import Final

from channels.db import database_sync_to_async
from django.apps import apps
from django.db import connection

from console.database import DATABASE_FAULTS
from signalbox.program import metrics

EVERY_S: Final = 30.0
_ROWS: Final = metrics.gauge("console_rows", "Rows of a table of the console, as its database counts them.", "table")
_BYTES: Final = metrics.gauge("console_database_bytes", "Bytes that the console's tables and indexes take on the disk.")
_OF_POSTGRESQL: Final = """
    SELECT relname, n_live_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables
"""


async def keep_counted() -> None:
    """Until cancelled."""
    while True:
        await measure()
        await asyncio.sleep(EVERY_S)


async def measure() -> None:
    """Count once. While the database is away the metrics are absent, not stale."""
    try:
        rows, size_bytes = await database_sync_to_async(_count)()
    except DATABASE_FAULTS:
        _ROWS.clear()
        _BYTES.set(float("nan"))
        return
    for table, count in rows.items():
        _ROWS.labels(table).set(count)
    _BYTES.set(size_bytes)


def _count() -> tuple[dict[str, int], int]:
    """Rows of each of our tables, and the bytes of all. PostgreSQL knows both; SQLite has to count."""
    ours = {model._meta.db_table for model in apps.get_models() if model._meta.managed}  # noqa: SLF001
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_OF_POSTGRESQL)
            found = cursor.fetchall()
            rows = {table: count for table, count, _ in found if table in ours}
            return rows, sum(size for _, _, size in found)
        rows = {}
        for table in sorted(ours):
            cursor.execute(f'SELECT COUNT(*) FROM "{table}"')  # noqa: S608  a name of ours
            rows[table] = cursor.fetchone()[0]
        cursor.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        return rows, cursor.fetchone()[0]
