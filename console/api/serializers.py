"""What the REST API takes and gives. Times are ISO 8601 in UTC."""

from typing import Any

from rest_framework import serializers

from console.api.strict import Strict
from console.bounds import MOST_COUNT, MOST_LETTERS, MOST_NUMBER
from console.catalog import policy, triton
from console.catalog.joining import state_of
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.modelsettings import SETTINGS
from console.catalog.publishing import unpublished
from console.fleet import listing, serving
from console.jobs import query, standing
from console.jobs.models import Job, JobEvent
from console.keys import services as keys
from console.keys.models import ApiKey, UnknownKey
from console.repositories.models import Repository
from signalbox.repositories.layouts import MOST_VERSIONS
from signalbox.wire.servingconfig import MOST_FILE_BYTES


class VersionOut(serializers.ModelSerializer[ModelVersion]):
    """One version of a model."""

    path = serializers.CharField(source="folder", read_only=True)
    joining = serializers.DictField(
        source="tried",
        read_only=True,
        allow_null=True,
        help_text="What a worker has found: signatures that may be `joined`, what `differs`, why some are `untried`.",
    )
    refused_signatures = serializers.DictField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = ModelVersion
        exclude = ("id", "model", "rules", "deleted_at", "deleted_by")


class ModelOut(serializers.ModelSerializer[ServedModel]):
    """A model with its versions and labels.

    serving_version: what requests without a version shall get. served_version: what they get now. condition: how the
    fleet serves it now, in words.
    """

    policy = serializers.DictField(
        read_only=True,
        help_text='`{"kind": "all"}`, `{"kind": "latest", "count": N}` or `{"kind": "specific", "versions": [...]}`.',
    )
    unserved = serializers.DictField(
        child=serializers.CharField(),
        read_only=True,
        help_text="Why versions are not served, or only until no accepted job needs them, by number.",
    )
    imported = serializers.DictField(
        read_only=True, help_text="What the last configuration of TensorFlow Serving said of it; empty: none has."
    )
    base_path = serializers.CharField(source="base_folder", read_only=True)
    repository = serializers.SlugRelatedField[Repository](
        slug_field="name", read_only=True, help_text="The one that brought it; null: people add its versions."
    )
    versions = VersionOut(many=True, read_only=True)
    labels = serializers.SerializerMethodField()
    serving_version = serializers.IntegerField(allow_null=True, read_only=True)
    served_version = serializers.SerializerMethodField()
    ready_replicas = serializers.SerializerMethodField()
    condition = serializers.SerializerMethodField()
    unpublished = serializers.SerializerMethodField()
    joining = serializers.SerializerMethodField()
    config = serializers.SerializerMethodField()

    class Meta:
        model = ServedModel
        exclude = ("published", "retiring", "id", "deleted_at", "deleted_by")

    def get_labels(self, model: ServedModel) -> dict[str, int]:
        """Label to version number."""
        return {label.name: label.version.number for label in model.labels.all()}

    def get_served_version(self, model: ServedModel) -> int | None:
        """The version; null where there is none, or it is not known."""
        return serving.served_version(model)

    def get_ready_replicas(self, model: ServedModel) -> int | None:
        """How many of the ``replicas`` have it in memory; null where that is not known now."""
        return serving.ready(model)

    def get_condition(self, model: ServedModel) -> str:
        """The board's word for it: ``ready``, ``loading``, ``does not load``, ``paused``, ``not known now``, ..."""
        return serving.condition(model, self.get_unpublished(model)).label

    def get_joining(self, model: ServedModel) -> dict[str, str]:
        """Whether requests are joined, and why: ``state`` and ``detail``."""
        return state_of(model)._asdict()

    def get_config(self, model: ServedModel) -> dict[str, Any] | None:
        """What became of its `config.pbtxt`: by field, how the version that serves differs, and why it is not read."""
        state = triton.state_of(model)
        return state._asdict() if state is not None else None

    def get_unpublished(self, model: ServedModel) -> str:
        """Why the last decision on it is not in NATS yet; empty once it is."""
        if self._unpublished is None:
            self._unpublished = unpublished()
        return self._unpublished.get(model.name, "")

    _unpublished: dict[str, str] | None = None


class ModelPageOut(serializers.Serializer[Any]):
    """A page of models, by name; ``after`` is that of the next one, empty at the end.

    With ``state`` a page may hold few models, or none, though later ones match.
    """

    models = ModelOut(many=True)
    after = serializers.CharField()


class ModelsQuery(Strict):
    """Which models, and which part of the list."""

    q = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=100, help_text="Part of a name or of a description."
    )
    repository = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=50,
        help_text="Those that it has brought; `-`: those that people added.",
    )
    state = serializers.ChoiceField(
        choices=list(listing.STATES.items()), required=False, default="", allow_blank=True, help_text="As the fleet is."
    )
    after = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=100, help_text="`after` of the page before."
    )
    size = serializers.IntegerField(required=False, default=50, min_value=1, max_value=200)


class FileOut(serializers.Serializer[Any]):
    """A file of a version. path: below the version's folder. etag: the object store's."""

    path = serializers.CharField()
    size_bytes = serializers.IntegerField()
    etag = serializers.CharField()


class VersionFilesOut(serializers.Serializer[Any]):
    """What a version consists of. place: its folder or URL. digest: of all bytes; empty while no host has had them.

    host: the one that had all bytes first, of a version that a repository brought. listed_at: null: just now.
    """

    place = serializers.CharField()
    files = FileOut(many=True)
    size_bytes = serializers.IntegerField()
    digest = serializers.CharField()
    host = serializers.CharField()
    listed_at = serializers.DateTimeField(allow_null=True)


class VersionAddedOut(VersionOut):
    """A version that was added. unpublished: why it is not in NATS yet; empty once it is."""

    unpublished = serializers.CharField()


REGISTERED = {201: ModelOut, 202: ModelOut}
ADDED = {201: VersionAddedOut, 202: VersionAddedOut}
"""201: the fleet knows. 202: it is registered here and not published yet, see ``unpublished``."""


class ReasonIn(Strict):
    """The reason, for the audit."""

    reason = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)


class NewSettingsIn(Strict, serializers.ModelSerializer[ServedModel]):
    """Settings of a new model."""

    class Meta:
        model = ServedModel
        fields = SETTINGS


class RegisterIn(Strict):
    """Register a path; the settings are for a new model.

    is_default: requests without a version get the highest new one; false: the default stays; null: as the model is set.
    """

    name = serializers.CharField(max_length=100)
    path = serializers.CharField(max_length=1000)
    description = serializers.CharField(max_length=300, required=False, default="", allow_blank=True)
    settings = NewSettingsIn(required=False, default=None)
    is_default = serializers.BooleanField(required=False, default=None, allow_null=True)


class UploadIn(Strict):
    """Upload an archive, as multipart form data.

    rows_independent: the setting of a new model. is_default: requests without a version get this one; false: the
    default stays; null: as the model is set.
    """

    archive = serializers.FileField()
    number = serializers.IntegerField(min_value=1, max_value=MOST_NUMBER, required=False, default=None)
    description = serializers.CharField(max_length=300, required=False, default="", allow_blank=True)
    rows_independent = serializers.BooleanField(required=False, default=False)
    is_default = serializers.BooleanField(required=False, default=None, allow_null=True)


class SettingsIn(ReasonIn, serializers.ModelSerializer[ServedModel]):
    """Any of a model's settings, and whether it is enabled."""

    class Meta:
        model = ServedModel
        fields = (*SETTINGS, "is_enabled", "reason")


class VersionIn(ReasonIn):
    """A version number; null for none."""

    version = serializers.IntegerField(min_value=0, max_value=MOST_NUMBER, allow_null=True)


class PolicyIn(ReasonIn):
    """Which versions are served; `count` is of `latest`, `versions` of `specific`. Numbers as in a model's `policy`."""

    kind = serializers.ChoiceField(choices=policy.KINDS)
    count = serializers.IntegerField(required=False, min_value=1, max_value=MOST_VERSIONS)
    versions = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=MOST_NUMBER), required=False, max_length=MOST_VERSIONS
    )


class ImportIn(Strict):
    """Files of TensorFlow Serving: `models.config`, and its batching parameters."""

    config = serializers.CharField(max_length=MOST_FILE_BYTES, trim_whitespace=False)
    batching = serializers.CharField(
        max_length=MOST_FILE_BYTES, required=False, default="", allow_blank=True, trim_whitespace=False
    )


class BecameOut(serializers.Serializer[Any]):
    """What a field came to."""

    field = serializers.CharField()
    what = serializers.CharField()
    is_taken = serializers.BooleanField()


class ImportedOut(serializers.Serializer[Any]):
    """What became of a model. why: it was refused as a whole; empty where it was not."""

    name = serializers.CharField()
    why = serializers.CharField()
    became = BecameOut(many=True)


class ImportOut(serializers.Serializer[Any]):
    """What became of each model of a configuration."""

    models = ImportedOut(many=True)


class SwitchIn(ReasonIn):
    """On or off, and the reason, for the audit."""

    on = serializers.BooleanField()


class DesiredStateOut(serializers.Serializer[Any]):
    """Desired state of a queue or worker. unpublished: why it is not in NATS yet; empty once it is."""

    on = serializers.BooleanField()
    reason = serializers.CharField()
    unpublished = serializers.CharField()


DESIRED_STATE = {200: DesiredStateOut, 202: DesiredStateOut}
"""202: it is noted here and not published yet, see ``unpublished``."""


class KeyOut(serializers.ModelSerializer[ApiKey]):
    """A key without its secret."""

    state = serializers.CharField(
        read_only=True, help_text="`active`, `expired`, `revoked`, or `disabled`: its account is."
    )
    networks = serializers.ListField(child=serializers.CharField())
    models = serializers.ListField(source="models_allowed", child=serializers.CharField())
    queues = serializers.ListField(source="queues_allowed", child=serializers.CharField())

    class Meta:
        model = ApiKey
        fields: tuple[str, ...] = (
            "id",
            "name",
            "owner",
            "state",
            "scopes",
            "models",
            "queues",
            "networks",
            "account",
            "rotated_from",
            "replaced_at",
            "rate",
            "per_s",
            "quota",
            "quota_window_s",
            "last_used_at",
            "expires_at",
            "revoked_at",
            "revoked_by",
            "revoked_reason",
            "created_at",
            "created_by",
        )


class UnknownKeyOut(serializers.ModelSerializer[UnknownKey]):
    """A key that gateways accept and this console does not know."""

    name = serializers.CharField(source="grant.name")
    state = serializers.CharField(read_only=True, help_text="`active`, `expired` or `revoked`.")
    scopes = serializers.ListField(source="grant.scopes", child=serializers.CharField())
    models = serializers.ListField(source="grant.models", child=serializers.CharField())
    queues = serializers.ListField(source="grant.queues", child=serializers.CharField())
    networks = serializers.ListField(source="grant.networks", child=serializers.CharField())
    account = serializers.CharField(source="grant.account_id", help_text="The account that owns its jobs.")

    class Meta:
        model = UnknownKey
        fields = ("id", "name", "state", "scopes", "models", "queues", "networks", "account", "seen_at")


class RotationIn(Strict):
    """How a key is replaced. overlap_days: how long the old one stays valid.

    days: until the new one expires; without it, as many as the old one was made for.
    """

    overlap_days = serializers.FloatField(min_value=0, max_value=keys.MAX_OVERLAP_DAYS, required=False, default=1)
    days = serializers.IntegerField(min_value=1, max_value=keys.MAX_DAYS, required=False)


class NewKeyOut(KeyOut):
    """A new key. key: its text, only in this answer. unpublished: why it is not in NATS yet; empty once it is."""

    key = serializers.CharField(read_only=True)
    unpublished = serializers.CharField(read_only=True)

    class Meta(KeyOut.Meta):
        fields = (*KeyOut.Meta.fields, "key", "unpublished")


KEY_MADE = {201: NewKeyOut, 202: NewKeyOut}
"""202: it is made here and not published yet, see ``unpublished``."""


class KeyIn(Strict):
    """What a new key allows. account: the id of the one it belongs to; empty: a new one, named like the key.

    models: names, or beginnings of names (``team-*``); empty: all that its account may use. A model that is not open to
    the account must be named here. queues: names of its account's queues; empty: all of them.
    """

    name = serializers.CharField(max_length=100)
    owner = serializers.CharField(max_length=150, required=False, default="", allow_blank=True)
    account = serializers.CharField(max_length=32, required=False, default="", allow_blank=True)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=keys.SCOPES),
        required=False,
        default=list(keys.DEFAULT_SCOPES),
        help_text="; ".join(f"{scope}: {words}" for scope, words in keys.SCOPE_WORDS.items()),
    )
    models = serializers.ListField(child=serializers.CharField(), required=False, default=list)
    queues = serializers.ListField(child=serializers.CharField(), required=False, default=list)
    networks = serializers.ListField(child=serializers.CharField(), required=False, default=list)
    rate = serializers.IntegerField(min_value=0, max_value=MOST_COUNT, required=False, default=0)
    per_s = serializers.IntegerField(min_value=1, max_value=MOST_COUNT, required=False, default=1)
    quota = serializers.IntegerField(min_value=0, max_value=MOST_COUNT, required=False, default=0)
    quota_window_s = serializers.IntegerField(min_value=1, max_value=MOST_COUNT, required=False, default=86_400)
    days = serializers.IntegerField(min_value=1, max_value=keys.MAX_DAYS, required=False, default=keys.DEFAULT_DAYS)


class FilterWord(serializers.CharField):
    """One word of the filter grammar."""

    def run_validation(self, data: Any = serializers.empty) -> Any:
        """The word. Raises a 400 for several."""
        word = super().run_validation(data)
        if isinstance(word, str) and len(word.split()) != 1:
            raise serializers.ValidationError("Give one word; several are for q.")
        return word


class JobsQuery(Strict):
    """Which jobs, and which part of the list. ``q`` takes the whole filter, each other parameter one word of it."""

    q = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=MOST_LETTERS,
        help_text="Filter as on the page: `state:failed model:digits`.",
    )
    before = serializers.CharField(
        required=False, default="", allow_blank=True, help_text="`older` of the page before."
    )
    size = serializers.IntegerField(required=False, default=50, min_value=1, max_value=500)
    sort = serializers.ChoiceField(
        choices=("newest", "oldest"), required=False, default="newest", help_text="Which jobs come first."
    )

    def get_fields(self) -> dict[str, Any]:
        """Those above, and one for each name of the grammar."""
        words = {name: FilterWord(required=False, help_text=f"As `{name}:` in q.") for name in query.QUALIFIERS}
        return super().get_fields() | words


class ErrorsQuery(Strict):
    """Which jobs are grouped by error."""

    q = serializers.CharField(
        required=False,
        default="state:failed",
        allow_blank=True,
        max_length=MOST_LETTERS,
        help_text="Filter as of the list: `state:failed created:<1h`.",
    )


class ErrorGroupOut(serializers.Serializer[Any]):
    """Errors that are alike, of one model. message: of the newest job, ``example``. q: the filter that finds them."""

    model = serializers.CharField()
    code = serializers.CharField()
    group = serializers.CharField()
    message = serializers.CharField()
    count = serializers.IntegerField()
    first = serializers.DateTimeField()
    last = serializers.DateTimeField()
    example = serializers.CharField()
    q = serializers.CharField()


class ErrorsOut(serializers.Serializer[Any]):
    """Errors by group. searched_to: nothing older was looked at; null = all was."""

    groups = ErrorGroupOut(many=True)
    searched_to = serializers.DateTimeField(allow_null=True)


class JobOut(serializers.ModelSerializer[Job]):
    """A job, as of its last event. standing: what has become of it since; empty where its state says it.

    parts: of the present attempt, in milliseconds, up to now.
    """

    standing = serializers.SerializerMethodField()
    parts = serializers.SerializerMethodField()

    class Meta:
        model = Job
        exclude = ("revision",)

    def get_standing(self, job: Job) -> str:
        """That its worker is gone, its deadline past or NATS away, or why it is not begun, in words."""
        return standing.of(job).why

    def get_parts(self, job: Job) -> dict[str, float]:
        """Where the time of its last attempt went, while it is open up to now."""
        return dict(standing.so_far(job).parts)


class EventOut(serializers.ModelSerializer[JobEvent]):
    """One change of a job's state."""

    class Meta:
        model = JobEvent
        exclude = ("job_id",)


class WaitOut(serializers.Serializer[Any]):
    """Why a job waits, as the job API says it; ``phase`` is empty for one that does not. position: jobs before it."""

    phase = serializers.CharField()
    position = serializers.IntegerField(allow_null=True)
    estimated_wait_s = serializers.FloatField(allow_null=True)
    is_longer_than_usual = serializers.BooleanField()


class JobDetailOut(serializers.Serializer[Any]):
    """A job, its changes of state, and why it waits."""

    job = JobOut()
    events = EventOut(many=True)
    wait = WaitOut()


class JobPageOut(serializers.Serializer[Any]):
    """A page of jobs; ``older`` is the ``before`` of the next one, null at the end. ``old_rows``: why what is shown may
    be old, empty where it is current.

    With a filter that no index serves a page may hold few jobs, or none, though older ones match.
    """

    jobs = JobOut(many=True)
    older = serializers.CharField(allow_null=True)
    old_rows = serializers.CharField()


class MeOut(serializers.Serializer[Any]):
    """The operator that a token belongs to. models: names, or beginnings of names, of those it is limited to."""

    name = serializers.CharField()
    role = serializers.CharField()
    models = serializers.ListField(child=serializers.CharField())
    acts = serializers.ListField(child=serializers.CharField())
