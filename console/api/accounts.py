"""REST calls on accounts."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.serializers import ReasonIn, SwitchIn
from console.api.strict import Strict
from console.jobs import usage
from console.keys import accounts, endings
from console.keys.accounts import Terms
from console.keys.models import Account
from console.queues import reading

_LISTED = 1000


class AccountOut(serializers.ModelSerializer[Account]):
    """An account. active_keys: how many of its keys neither ended nor were revoked, while it is not disabled.

    cancels_jobs: it is deleted, and its open jobs are being cancelled.
    """

    state = serializers.CharField(read_only=True, help_text="`active`, `disabled` or `deleted`.")
    models = serializers.ListField(source="models_allowed", child=serializers.CharField())
    active_keys = serializers.IntegerField(read_only=True)
    last_used_at = serializers.DateTimeField(read_only=True, allow_null=True)

    class Meta:
        model = Account
        exclude = ("models_allowed",)


class AccountDetailOut(AccountOut):
    """An account with its keys. jobs: how many in each state, of its newest 10 000.

    open_bytes: inputs of jobs that have not ended. queued_bytes: items in its queues, null where NATS does not tell.
    unpublished: why its terms are not in NATS yet; empty once they are.
    """

    keys = serializers.ListField(child=serializers.CharField())
    jobs = serializers.DictField(child=serializers.CharField())
    open_bytes = serializers.IntegerField()
    queued_bytes = serializers.IntegerField(allow_null=True)
    unpublished = serializers.CharField()


def _share(
    name: str, about: str, otherwise: str = "as the gateways' settings have it for every account"
) -> serializers.IntegerField:
    words = f"{about} 0: {otherwise}."
    return serializers.IntegerField(
        min_value=0, max_value=accounts.BOUNDS[name], required=False, default=0, help_text=words
    )


class AccountIn(Strict):
    """An account's terms. models: names, or beginnings of names (``team-*``), that its keys may use; empty: every model
    that is open to it.
    """

    name = serializers.CharField(max_length=accounts.MOST_NAME)
    note = serializers.CharField(max_length=accounts.MOST_NOTE, required=False, default="", allow_blank=True)
    models = serializers.ListField(child=serializers.CharField(), required=False, default=list)
    stored_bytes = _share("stored_bytes", "Of inputs of its jobs that have not ended.")
    waiting = _share("waiting", "Its calls that wait for a result at one gateway.")
    idempotency_keys = _share("idempotency_keys", "Remembered at once.")
    result_bytes = _share("result_bytes", "Of its latest results, where room for results is short.")
    queue_bytes = _share("queue_bytes", "Of items in its queues, source and sink.", "as many as its queues take")


class AccountChangeIn(AccountIn, ReasonIn):
    """Any of an account's terms, and why they change."""


class AccountDeletionIn(Strict):
    """jobs: whether its open jobs ``finish`` or are cancelled (``cancel``). reason: for the audit."""

    jobs = serializers.ChoiceField(choices=list(endings.JOBS))
    reason = serializers.CharField(max_length=200)


class Accounts(Endpoint):
    """Accounts."""

    @extend_schema(operation_id="accounts_list", responses=AccountOut(many=True))
    def index(self, request: Request) -> Response:
        """List accounts."""
        self.sees(request, Act.ACCOUNTS_VIEW)
        return Response(AccountOut(accounts.listed()[:_LISTED], many=True).data)

    @extend_schema(request=AccountIn, responses={201: AccountDetailOut})
    def create(self, request: Request) -> Response:
        """Create an account, without keys."""
        self.confirmed(request)
        made = accounts.create(self.actor(request), Terms(**self.given(request, AccountIn)))
        return Response(_reported(made.pk, ""), status=201)

    @extend_schema(responses=AccountDetailOut)
    def show(self, request: Request, account_id: str) -> Response:
        """Show an account with its keys and its jobs by state."""
        self.sees(request, Act.ACCOUNTS_VIEW)
        return Response(_reported(account_id, accounts.unpublished(accounts.find(account_id))))

    @extend_schema(request=AccountChangeIn, responses={200: AccountDetailOut, 202: AccountDetailOut})
    def change(self, request: Request, account_id: str) -> Response:
        """Change an account's terms. 202: gateways do not have them yet, see ``unpublished``."""
        self.confirmed(request)
        changes = self.given(request, AccountChangeIn, partial=True)
        reason = changes.pop("reason", "")
        account = accounts.change(self.actor(request), account_id, changes, reason=reason)
        why = accounts.why_unpublished(account)
        return Response(_reported(account_id, why), status=202 if why else 200)

    @extend_schema(request=SwitchIn, responses={200: AccountDetailOut, 202: AccountDetailOut})
    def disable(self, request: Request, account_id: str) -> Response:
        """Disable (``on``) an account, so that its keys are refused, or enable it again. 202: gateways do not know it
        yet, see ``unpublished``.
        """
        data = self.given(request, SwitchIn)
        if not data["on"]:
            self.confirmed(request)
        switch = endings.disable if data["on"] else endings.enable
        return _ended(switch(self.actor(request), account_id, reason=data["reason"]))

    @extend_schema(request=AccountDeletionIn, responses={200: AccountDetailOut, 202: AccountDetailOut})
    def remove(self, request: Request, account_id: str) -> Response:
        """Delete an account: its keys end for good. 202: gateways do not know it yet, see ``unpublished``."""
        self.confirmed(request)
        return _ended(endings.delete(self.actor(request), account_id, **self.given(request, AccountDeletionIn)))


def _ended(account: Account) -> Response:
    why = accounts.why_unpublished(account)
    return Response(_reported(account.pk, why), status=202 if why else 200)


def _reported(account_id: str, why_unpublished: str) -> dict[str, Any]:
    account = accounts.shown(account_id)
    used = usage.of_account(account_id)
    return {
        **AccountOut(account).data,
        "keys": list(account.keys.values_list("pk", flat=True)),
        "jobs": used.jobs,
        "open_bytes": used.open_bytes,
        "queued_bytes": reading.bytes_of(account_id),
        "unpublished": why_unpublished,
    }
