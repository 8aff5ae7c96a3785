"""The audit cannot be changed unseen: not by our own code at all, and not by hand without breaking the chain."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from console.accounts.rights import Actor
from console.audit.models import AuditEntry, AuditHead, breaks
from console.operators import services as accounts
from signalbox.program.errors import Bug, Forbidden
from tests.console.conftest import PASSWORD, in_thread


def write(admin: Actor, count: int = 5) -> None:
    """Some acts, one of them refused."""
    for number in range(count - 1):
        accounts.switch_read_only(admin, is_read_only=bool(number % 2), message=f"é {number}")
    anonymous = Actor(user=None)
    with pytest.raises(Forbidden):
        accounts.create_user(anonymous, "x", PASSWORD, "viewer")


def by_hand(sql: str) -> None:
    """As somebody with the database's password would."""
    with connection.cursor() as cursor:
        for statement in sql.split("; "):
            cursor.execute(statement)


def test_acts_and_refusals_are_sealed_in_the_order_they_were_written(admin: Actor) -> None:
    write(admin)
    assert list(breaks()) == []
    rows = list(AuditEntry.objects.order_by("number"))
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]
    head = AuditHead.objects.get()
    assert (head.number, head.digest) == (5, rows[-1].digest)
    said = StringIO()
    call_command("audit", database_only=True, stdout=said)
    assert rows[-1].digest in said.getvalue()


FORGED = (
    "INSERT INTO audit_auditentry (number, at, actor_name, via, address, request_id, act, target_kind, target, reason,"
    " before, after, result, message, digest) VALUES (6, '{at} 00:00:00+00:00', 'viewer', 'web', '', '', 'keys.manage',"
    " 'key', 'k', '', '{{}}', '{{}}', 'done', '', '')"
)
"""A row that was never written by an act; the schema has none without a number."""


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE audit_auditentry SET actor_name = 'somebody else' WHERE number = 3", "3: changed"),
        ("UPDATE audit_auditentry SET result = 'done' WHERE number = 5", "5: changed"),
        ("UPDATE audit_auditentry SET at = '2020-01-01 00:00:00+00:00' WHERE number = 1", "1: changed"),
        ("DELETE FROM audit_auditentry WHERE number = 2", "between 1 and 3: 1 missing"),
        ("DELETE FROM audit_auditentry WHERE number = 5", "the chain once ended at 5"),
        ("DELETE FROM audit_auditentry", "the chain once ended at 5"),
        ("UPDATE audit_auditentry SET number = 99 WHERE number = 4", "missing"),
        ("DELETE FROM audit_audithead", "the head is missing"),
        ("DELETE FROM audit_auditentry WHERE number > 3; DELETE FROM audit_audithead", "after 3: the head is missing"),
        (FORGED.format(at="2040-01-01"), "6: changed"),
        (FORGED.format(at="2020-01-01"), "6: changed"),
    ],
)
def test_what_is_done_by_hand_is_found(admin: Actor, sql: str, words: str) -> None:
    write(admin)
    by_hand(sql)
    assert words in "; ".join(breaks())
    with pytest.raises(CommandError, match="not as it was written"):
        call_command("audit", database_only=True)


def test_our_own_code_neither_changes_nor_deletes(admin: Actor) -> None:
    write(admin, 2)
    row = AuditEntry.objects.first()
    assert row is not None
    for act in (
        row.save,
        row.delete,
        AuditEntry.objects.all().delete,
        lambda: AuditEntry.objects.update(reason="another"),
    ):
        with pytest.raises(Bug):
            act()
    assert list(breaks()) == []


def test_a_transaction_that_is_rolled_back_leaves_the_chain_whole(admin: Actor) -> None:
    write(admin, 2)
    with pytest.raises(Exception, match="role"):
        accounts.create_user(admin, "newcomer", PASSWORD, "no such role")
    assert AuditEntry.objects.filter(result="failed").count() == 1
    assert list(breaks()) == []


@pytest.mark.django_db(transaction=True)
async def test_acts_at_the_same_time_make_one_chain(cast: object) -> None:
    import asyncio

    from console.accounts.rights import system_actor

    def act(number: int) -> None:
        accounts.switch_read_only(system_actor("tests"), is_read_only=False, message=str(number))

    await asyncio.gather(*(in_thread(act, number) for number in range(12)))
    assert await in_thread(lambda: list(breaks())) == []
    assert await in_thread(AuditEntry.objects.count) == 12
