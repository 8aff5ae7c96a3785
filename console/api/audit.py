"""REST: the audit, and lists as files."""

from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.strict import Strict
from console.audit import listing, query, words
from console.audit.models import AuditEntry
from console.bounds import MOST_LETTERS, MOST_NUMBER
from console.exports import lists
from console.keys.names import names_of


class AuditQuery(Strict):
    """Which part of the audit: the filter of its page, whole (`q`) or in parts."""

    q = serializers.CharField(
        required=False, default="", max_length=MOST_LETTERS, help_text='As on the page: `actor:anna reason:"new ups"`.'
    )
    before = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=MOST_NUMBER, help_text="Entries older than this id."
    )
    size = serializers.IntegerField(required=False, default=100, min_value=1, max_value=500)

    def get_fields(self) -> dict[str, Any]:
        """Those above, and each qualifier of the filter."""
        return super().get_fields() | {
            name: serializers.CharField(required=False, max_length=MOST_LETTERS, help_text=f"As `{name}:` in q.")
            for name in query.QUALIFIERS
        }


class ExportQuery(Strict):
    """The filter of a list, as on its page."""

    q = serializers.CharField(required=False, max_length=MOST_LETTERS, help_text="Of the audit, jobs and models.")
    state = serializers.CharField(required=False, max_length=20, help_text="Of jobs and models.")
    repository = serializers.CharField(required=False, max_length=100, help_text="Of models.")


class ChangeOut(serializers.Serializer[Any]):
    """What an act changed, in words."""

    what = serializers.CharField(help_text="The field, in words.")
    before = serializers.CharField(help_text="Empty where it goes without saying.")
    after = serializers.CharField()


class AuditOut(serializers.ModelSerializer[AuditEntry]):
    """One entry of the audit."""

    changes = serializers.SerializerMethodField()

    class Meta:
        model = AuditEntry
        exclude = ("actor",)

    @extend_schema(responses=ChangeOut(many=True))
    def get_changes(self, entry: AuditEntry) -> list[dict[str, str]]:
        """Before and after in words, as the page has them."""
        return [
            {"what": change.label, "before": change.before, "after": change.after}
            for change in words.changes(entry, self.context.get("names", {}))
        ]


class AuditPageOut(serializers.Serializer[Any]):
    """A page of the audit, newest first."""

    entries = AuditOut(many=True)
    older = serializers.IntegerField(help_text="`before` of the next page; 0 where there is none.")


class Audit(Endpoint):
    """The audit, newest first, and lists as files."""

    @extend_schema(operation_id="audit_list", parameters=[AuditQuery], responses=AuditPageOut)
    def index(self, request: Request) -> Response:
        """List entries of the audit, newest first."""
        self.sees(request, Act.AUDIT_VIEW)
        asked = self.asked(request, AuditQuery)
        parts = (f"{name}:{_quoted(asked[name])}" for name in query.QUALIFIERS if name in asked)
        found = query.parse(" ".join((asked["q"], *parts)), timezone.now())
        page = listing.page(found, before=asked["before"], size=asked["size"])
        names = names_of(words.ids(page.entries))
        entries = AuditOut(page.entries, many=True, context={"names": names}).data
        return Response({"entries": entries, "older": page.older})

    @extend_schema(
        operation_id="export",
        parameters=[ExportQuery],
        responses={(200, "text/csv"): OpenApiTypes.STR, (200, "application/x-ndjson"): OpenApiTypes.STR},
    )
    def export(self, request: Request, file: str) -> StreamingHttpResponse:
        """Export a list as `<list>.csv` or `<list>.jsonl`: audit, jobs, keys, accounts, models or workers."""
        given = self.asked(request, ExportQuery)
        return lists.download(request._request, self.actor(request), file, given)  # noqa: SLF001  as in the base


def _quoted(word: str) -> str:
    return '"{}"'.format(word.replace('"', ""))
