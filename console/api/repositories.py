"""REST calls on repositories."""

from typing import Any, Final

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.api.base import Endpoint
from console.api.serializers import ReasonIn
from console.api.strict import Strict
from console.catalog import storing, triton
from console.catalog.models import ServedModel, StoredUpload
from console.config import UPLOADS
from console.repositories import conditions, removal, services
from console.repositories.models import MOST_REFUSED, Listing, Repository
from console.repositories.services import Terms

_LISTED: Final = 1000


class ListingOut(serializers.ModelSerializer[Listing]):
    """What the last listing found. error: why the last one failed. alarm: why what has vanished is not withdrawn."""

    class Meta:
        model = Listing
        exclude = ("repository", "refused")


class RepositoryOut(serializers.ModelSerializer[Repository]):
    """A repository. models: how many models it has brought. state: in words, and why."""

    accounts = serializers.ListField(source="access_accounts", child=serializers.CharField())
    models = serializers.IntegerField(source="served")
    state = serializers.SerializerMethodField()
    why = serializers.SerializerMethodField()
    listing = ListingOut(read_only=True, allow_null=True)

    class Meta:
        model = Repository
        exclude = ("id", "access_accounts", "deleted_at", "deleted_by")

    def get_state(self, repository: Repository) -> str:
        """``listed``, ``not listed yet``, ``cannot be listed``, ``nothing is withdrawn``, ``not noticed``, ..."""
        return conditions.of(repository).label

    def get_why(self, repository: Repository) -> str:
        """More of the state; empty where it says all."""
        return conditions.of(repository).why


class UploadOut(serializers.ModelSerializer[StoredUpload]):
    """An upload whose files are on their way. state: ``writing``, or ``leaving`` while they are removed."""

    class Meta:
        model = StoredUpload
        fields = ("model", "number", "url", "state", "size_bytes", "sent_bytes", "added_by", "touched_at")


class RepositoryDetailOut(RepositoryOut):
    """A repository with what its last listing refused, and what its models' `config.pbtxt` ask for and do not get."""

    refused = serializers.SerializerMethodField(help_text=f"Why, by path; at most {MOST_REFUSED} of them.")
    left = serializers.SerializerMethodField(
        help_text=f"Fields of `config.pbtxt` that are not taken over, by model; of {MOST_REFUSED} models at most."
    )

    uploads = serializers.SerializerMethodField(help_text="Of `uploads`: what is being written, or removed again.")

    @extend_schema_field(UploadOut(many=True))
    def get_uploads(self, repository: Repository) -> Any:
        """Uploads under way, newest first."""
        found = storing.under_way()[:_LISTED] if repository.name == UPLOADS else ()
        return UploadOut(found, many=True).data

    def get_refused(self, repository: Repository) -> dict[str, str]:
        """Why, by path."""
        listing = conditions.listing_of(repository)
        return dict(listing.refused) if listing is not None else {}

    def get_left(self, repository: Repository) -> dict[str, list[str]]:
        """Fields, by model."""
        return triton.left_of(repository, MOST_REFUSED)


class DefaultsIn(Strict, serializers.ModelSerializer[ServedModel]):
    """Settings that new models get."""

    class Meta:
        model = ServedModel
        fields = services.DEFAULTS


class TermsIn(Strict):
    """What counts for a repository. accounts: ids, where access is for accounts. marker: the file that a version's
    folder gets last, empty: none is waited for.
    """

    url = serializers.CharField(max_length=1000)
    description = serializers.CharField(
        max_length=services.MOST_DESCRIPTION, required=False, default="", allow_blank=True
    )
    is_noticed = serializers.BooleanField(required=False, default=True)
    access = serializers.ChoiceField(choices=Repository.ACCESS, required=False, default=Repository.PRIVATE)
    accounts = serializers.ListField(child=serializers.CharField(max_length=32), required=False, default=list)
    defaults = DefaultsIn(required=False, default=None)
    marker = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)
    settle_s = serializers.FloatField(min_value=0, max_value=services.MOST_S, required=False, default=20.0)
    grace_s = serializers.FloatField(min_value=0, max_value=services.MOST_S, required=False, default=3600.0)


class RepositoryIn(TermsIn):
    """A new repository."""

    name = serializers.CharField(max_length=services.MOST_NAME)


class RepositoryChangeIn(TermsIn, ReasonIn):
    """Any of a repository's terms, and why they change."""


class Repositories(Endpoint):
    """Repositories: places that models come from."""

    @extend_schema(operation_id="repositories_list", responses=RepositoryOut(many=True))
    def index(self, request: Request) -> Response:
        """List repositories, with what their last listings found."""
        self.sees(request, Act.MODELS_VIEW)
        return Response(RepositoryOut(services.listed()[:_LISTED], many=True).data)

    @extend_schema(request=RepositoryIn, responses={201: RepositoryDetailOut})
    def add(self, request: Request) -> Response:
        """Add a repository. The models in it are found by the controller, and private unless ``access`` says more."""
        self.confirmed(request)
        given = self.given(request, RepositoryIn)
        name, defaults = given.pop("name"), given.pop("defaults") or {}
        made = services.add(self.actor(request), name, Terms(**given, defaults=defaults))
        return Response(RepositoryDetailOut(made).data, status=201)

    @extend_schema(responses=RepositoryDetailOut)
    def show(self, request: Request, name: str) -> Response:
        """Show a repository, and what its last listing found and refused."""
        self.sees(request, Act.MODELS_VIEW)
        return Response(RepositoryDetailOut(services.find(name)).data)

    @extend_schema(request=RepositoryChangeIn, responses=RepositoryDetailOut)
    def change(self, request: Request, name: str) -> Response:
        """Change a repository's terms. A change of who may call its models publishes all of them."""
        self.confirmed(request)
        changes: dict[str, Any] = self.given(request, RepositoryChangeIn, partial=True)
        reason = changes.pop("reason", "")
        return Response(RepositoryDetailOut(services.change(self.actor(request), name, changes, reason=reason)).data)

    @extend_schema(responses={204: None})
    def remove(self, request: Request, name: str) -> Response:
        """Delete a repository with its models, unless an open job needs one. Nothing that lies there is touched."""
        self.confirmed(request)
        removal.delete(self.actor(request), name)
        return Response(status=204)

    @extend_schema(request=ReasonIn, responses=RepositoryDetailOut)
    def undo(self, request: Request, name: str) -> Response:
        """Bring a deleted repository back, with the models that were deleted with it."""
        self.confirmed(request)
        reason = self.given(request, ReasonIn)["reason"]
        return Response(RepositoryDetailOut(removal.undo(self.actor(request), name, reason=reason)).data)
