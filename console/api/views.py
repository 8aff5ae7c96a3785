"""The REST API: parse, call the service, render. Rights are the services' and :func:`authorize`'s."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.acts import Act
from console.accounts.models import User
from console.accounts.rights import may
from console.api import serializers as wire
from console.api.base import Endpoint
from console.api.deletion import DeletedOut
from console.api.strict import refuse_odd_query
from console.api.workers import desired_state
from console.audit.acts import Target, check
from console.catalog import (
    approval,
    files,
    imports,
    inspection,
    lookup,
    modelsettings,
    publishing,
    registration,
    selection,
    targets,
    uploads,
)
from console.deletion import listing as undoable
from console.deletion import wholemodels
from console.fleet import listing as models
from console.fleet import services as fleet
from console.jobs import groups, listing, query, standing
from console.jobs import services as jobs

_SCHEMA_TAKES: Final = frozenset({"format", "lang"})


class Schema(SpectacularAPIView):
    """The OpenAPI document, which does not describe itself."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raises a 400 for an unknown query parameter."""
        super().initial(request, *args, **kwargs)
        refuse_odd_query(request, _SCHEMA_TAKES)

    def handle_exception(self, exc: Exception) -> Response:
        """A refusal is JSON, whatever form the document was asked for in."""
        self.request.accepted_renderer = JSONRenderer()
        self.request.accepted_media_type = JSONRenderer.media_type
        return super().handle_exception(exc)


class Models(Endpoint):
    """Models, their versions, labels and queues."""

    @extend_schema(operation_id="models_list", parameters=[wire.ModelsQuery], responses=wire.ModelPageOut)
    def index(self, request: Request) -> Response:
        """List models by name, those that match."""
        self.sees(request, Act.MODELS_VIEW)
        page = models.page(**self.asked(request, wire.ModelsQuery), only=self.actor(request).only_models)
        found = [model for model, _ in page.models]
        return Response({"models": wire.ModelOut(found, many=True).data, "after": page.after})

    @extend_schema(request=wire.RegisterIn, responses=wire.REGISTERED)
    def register(self, request: Request) -> Response:
        """Register the model versions in the folders below a path."""
        self.confirmed(request)
        data = self.given(request, wire.RegisterIn)
        model = registration.register(self.actor(request), changes=data.pop("settings"), **data)
        why = publishing.why_unpublished(model.name)
        return Response(wire.ModelOut(model).data, status=202 if why else 201)

    @extend_schema(request=wire.ImportIn, responses=wire.ImportOut)
    def import_config(self, request: Request) -> Response:
        """Make models as a configuration of TensorFlow Serving says. Run again, it changes only what differs."""
        self.confirmed(request)
        data = self.given(request, wire.ImportIn)
        check(self.actor(request), Act.MODELS_REGISTER, Target("model", "-"))
        config = inspection.inspect_serving(data["config"], data["batching"])
        found = imports.carry_out(self.actor(request), config)
        return Response(
            {"models": [{**one._asdict(), "became": [each._asdict() for each in one.became]} for one in found]}
        )

    @extend_schema(responses=wire.ModelOut)
    def show(self, request: Request, name: str) -> Response:
        """Show a model."""
        self.sees(request, Act.MODELS_VIEW)
        return Response(wire.ModelOut(lookup.find(name)).data)

    @extend_schema(request=wire.SettingsIn, responses=wire.ModelOut)
    def change(self, request: Request, name: str) -> Response:
        """Change a model's settings, or enable or disable it."""
        data = self.given(request, wire.SettingsIn, partial=True)
        reason = data.pop("reason", "")
        is_enabled = data.pop("is_enabled", None)
        actor = self.actor(request)
        if data or is_enabled is None:
            modelsettings.change_settings(actor, name, data, reason=reason)
        if is_enabled is not None:
            modelsettings.set_enabled(actor, name, is_enabled=is_enabled, reason=reason)
        publishing.why_unpublished(name)
        return Response(wire.ModelOut(lookup.find(name)).data)

    @extend_schema(responses=DeletedOut)
    def remove(self, request: Request, name: str) -> Response:
        """Delete a model with all of its versions. Refused while an open job needs it."""
        check(self.actor(request), Act.MODELS_DELETE, Target("model", name))
        self.confirmed(request)
        model = wholemodels.delete_model(self.actor(request), name)
        deleted = {**undoable.of(model)._asdict(), "unpublished": publishing.why_unpublished(name)}
        return Response(DeletedOut(deleted).data)

    @extend_schema(request={"multipart/form-data": wire.UploadIn}, responses=wire.ADDED)
    def upload(self, request: Request, name: str) -> Response:
        """Upload an archive of a SavedModel as a new version."""
        # Before the form is parsed. That who may not upload cannot fill the disk is console.web.bodylimit's doing;
        # here the refusal is written into the audit.
        check(self.actor(request), Act.MODELS_REGISTER, Target("model", name))
        self.confirmed(request)
        given = registration.with_joining(self.given(request, wire.UploadIn))
        version = uploads.upload(self.actor(request), name, **given)
        why = publishing.why_unpublished(name)
        return Response({**wire.VersionOut(version).data, "unpublished": why}, status=202 if why else 201)

    @extend_schema(responses=wire.VersionFilesOut)
    def files(self, request: Request, name: str, number: str) -> Response:
        """Show the files and the digest of a version: of a repository's as it was listed last, else of its folder."""
        self.sees(request, Act.MODELS_VIEW)
        found = files.of(lookup.find_version(name, number))
        listed_at = datetime.fromtimestamp(found.listed_at, UTC) if found.listed_at else None
        shown = {**msgspec.structs.asdict(found), "size_bytes": found.size_bytes, "listed_at": listed_at}
        return Response(wire.VersionFilesOut(shown).data)

    @extend_schema(request=wire.VersionIn, responses=wire.ModelOut)
    def approve(self, request: Request, name: str) -> Response:
        """Approve the operations of a version, so that it may serve. The operator who added it may not."""
        data = self.given(request, wire.VersionIn)
        model = approval.approve(self.actor(request), name, data["version"] or 0, reason=data["reason"])
        publishing.why_unpublished(name)
        return Response(wire.ModelOut(model).data)

    @extend_schema(request=wire.VersionIn, responses=wire.ModelOut)
    def set_default(self, request: Request, name: str) -> Response:
        """Choose the default version; null: always the highest one."""
        data = self.given(request, wire.VersionIn)
        model = targets.set_default(self.actor(request), name, data["version"], reason=data["reason"])
        publishing.why_unpublished(name)  # the answer says it, after a moment's wait for the publication
        return Response(wire.ModelOut(model).data)

    @extend_schema(request=wire.PolicyIn, responses=wire.ModelOut)
    def set_policy(self, request: Request, name: str) -> Response:
        """Choose which versions are served, beside the default one that was chosen and those with a label."""
        data = self.given(request, wire.PolicyIn)
        reason = data.pop("reason")
        selection.set_policy(self.actor(request), name, data, reason=reason)
        publishing.why_unpublished(name)
        return Response(wire.ModelOut(lookup.find(name)).data)

    @extend_schema(request=wire.VersionIn, responses=wire.ModelOut)
    def set_label(self, request: Request, name: str, label: str) -> Response:
        """Point a label at a version; null removes the label."""
        data = self.given(request, wire.VersionIn)
        targets.set_label(self.actor(request), name, label, data["version"], reason=data["reason"])
        publishing.why_unpublished(name)
        return Response(wire.ModelOut(lookup.find(name)).data)

    @extend_schema(request=wire.SwitchIn, responses=wire.DESIRED_STATE)
    def pause(self, request: Request, name: str) -> Response:
        """Pause (``on``) or resume a model's queue."""
        data = self.given(request, wire.SwitchIn)
        desired = fleet.pause(self.actor(request), name, is_paused=data["on"], reason=data["reason"])
        return desired_state(desired)


class Jobs(Endpoint):
    """Jobs."""

    @extend_schema(operation_id="jobs_list", parameters=[wire.JobsQuery], responses=wire.JobPageOut)
    def index(self, request: Request) -> Response:
        """List jobs, newest or oldest first."""
        self.sees(request, Act.JOBS_VIEW)
        asked = self.asked(request, wire.JobsQuery)
        words = [asked["q"], *(f"{name}:{asked[name]}" for name in query.QUALIFIERS if name in asked)]
        found = query.within(query.parse(" ".join(words), timezone.now()), self.actor(request).only_models)
        is_oldest_first = asked["sort"] == "oldest"
        page = listing.page(found, before=asked["before"], size=asked["size"], is_oldest_first=is_oldest_first)
        jobs_out = wire.JobOut(page.jobs, many=True).data
        return Response({"jobs": jobs_out, "older": page.older, "old_rows": standing.why_rows_are_old()})

    @extend_schema(operation_id="jobs_errors", parameters=[wire.ErrorsQuery], responses=wire.ErrorsOut)
    def errors(self, request: Request) -> Response:
        """Group jobs by model and error, the largest group first: among the newest 10 000 that have one."""
        self.sees(request, Act.JOBS_VIEW)
        asked = query.parse(self.asked(request, wire.ErrorsQuery)["q"], timezone.now())
        found = groups.by_error(query.within(asked, self.actor(request).only_models))
        rows = [{**vars(group), "q": group.words} for group in found.groups]
        return Response(wire.ErrorsOut({"groups": rows, "searched_to": found.searched_to}).data)

    @extend_schema(responses=wire.JobDetailOut)
    def show(self, request: Request, job_id: str) -> Response:
        """Show a job, its changes of state, and why it waits."""
        self.sees(request, Act.JOBS_VIEW)
        job = jobs.find(job_id)
        how = standing.with_place(job)
        wait = {
            "phase": how.why if job.state == "queued" else "",
            "position": how.position.ahead,
            "estimated_wait_s": how.position.wait_s,
            "is_longer_than_usual": how.position.is_late,
        }
        return Response(wire.JobDetailOut({"job": job, "events": jobs.events(job), "wait": wait}).data)


class Console(Endpoint):
    """Who asks."""

    @extend_schema(responses=wire.MeOut)
    def me(self, request: Request) -> Response:
        """Show the caller's name, role and rights."""
        actor = self.actor(request)
        user = request.user
        role = user.role if isinstance(user, User) else ""
        acts = [act.value for act in Act if may(actor, act)]
        return Response({"name": actor.name, "role": role, "models": actor.only_models, "acts": acts})
