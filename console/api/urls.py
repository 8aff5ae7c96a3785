"""Routes of the REST API."""

from django.urls import path
from rest_framework.parsers import MultiPartParser

from console.api import docs, views
from console.api.accounts import Accounts
from console.api.audit import Audit
from console.api.deadletters import DeadLetters
from console.api.deletion import Deletion
from console.api.devices import Devices
from console.api.figures import Figures
from console.api.hosts import Hosts
from console.api.jobacts import JobActs
from console.api.keys import Keys
from console.api.payloads import Payloads
from console.api.queues import Queues
from console.api.repositories import Repositories
from console.api.results import Batches, Subscriptions, Webhooks
from console.api.savedviews import Views
from console.api.scaling import Scaling
from console.api.selections import Selections
from console.api.splits import Splits
from console.api.steering import Steering
from console.api.undo import Undo
from console.api.usage import Usage
from console.api.users import Users
from console.api.workers import Workers

urlpatterns = [
    path("", docs.page, name="api-docs"),
    path("schema", views.Schema.as_view(), name="api-schema"),
    path("me", views.Console.as_view({"get": "me"}), name="api-me"),
    path("models", views.Models.as_view({"get": "index", "post": "register"}), name="api-models"),
    path("imports", views.Models.as_view({"post": "import_config"}), name="api-imports"),
    path(
        "models/<str:name>",
        views.Models.as_view({"get": "show", "patch": "change", "delete": "remove"}),
        name="api-model",
    ),
    path("models/<str:name>/undo", Deletion.as_view({"post": "undo_model"}), name="api-undo-model"),
    path(
        "models/<str:name>/versions",
        views.Models.as_view({"post": "upload"}, parser_classes=(MultiPartParser,)),
        name="api-versions",
    ),
    path(
        "models/<str:name>/versions/<str:number>/files",
        views.Models.as_view({"get": "files"}),
        name="api-version-files",
    ),
    path("models/<str:name>/versions/<str:number>", Deletion.as_view({"delete": "version"}), name="api-version"),
    path(
        "models/<str:name>/versions/<str:number>/undo",
        Deletion.as_view({"post": "undo_version"}),
        name="api-undo-version",
    ),
    path("deleted", Deletion.as_view({"get": "index"}), name="api-deleted"),
    path("models/<str:name>/approval", views.Models.as_view({"put": "approve"}), name="api-approval"),
    path("models/<str:name>/default", views.Models.as_view({"put": "set_default"}), name="api-default"),
    path("models/<str:name>/policy", views.Models.as_view({"put": "set_policy"}), name="api-policy"),
    path("models/<str:name>/labels/<str:label>", views.Models.as_view({"put": "set_label"}), name="api-label"),
    path("models/<str:name>/figures", Figures.as_view({"get": "of_model"}), name="api-figures"),
    path("models/<str:name>/splits", Splits.as_view({"get": "index"}), name="api-splits"),
    path("models/<str:name>/splits/<str:target>", Splits.as_view({"put": "change"}), name="api-split"),
    path("models/<str:name>/splits/<str:target>/promote", Splits.as_view({"post": "promote"}), name="api-promote"),
    path(
        "models/<str:name>/splits/<str:target>/roll-back", Splits.as_view({"post": "roll_back"}), name="api-roll-back"
    ),
    path("models/<str:name>/pause", views.Models.as_view({"put": "pause"}), name="api-pause"),
    path("models/<str:name>/pin", Steering.as_view({"put": "pin"}), name="api-pin"),
    path("models/<str:name>/load", Steering.as_view({"post": "load"}), name="api-load"),
    path("repositories", Repositories.as_view({"get": "index", "post": "add"}), name="api-repositories"),
    path(
        "repositories/<str:name>",
        Repositories.as_view({"get": "show", "patch": "change", "delete": "remove"}),
        name="api-repository",
    ),
    path("repositories/<str:name>/undo", Repositories.as_view({"post": "undo"}), name="api-undo-repository"),
    path("scaling", Scaling.as_view({"get": "show"}), name="api-scaling"),
    path("models/<str:name>/replicas", Scaling.as_view({"get": "replicas"}), name="api-replicas"),
    path("hosts", Hosts.as_view({"get": "index"}), name="api-hosts"),
    path("hosts/<str:host>", Hosts.as_view({"get": "show"}), name="api-host"),
    path("hosts/<str:host>/drain", Hosts.as_view({"put": "drain"}), name="api-host-drain"),
    path("workers", Workers.as_view({"get": "index"}), name="api-workers"),
    path("workers/<str:worker>", Workers.as_view({"get": "show"}), name="api-worker"),
    path("workers/<str:worker>/drain", Workers.as_view({"put": "drain"}), name="api-drain"),
    path("workers/<str:worker>/release", Workers.as_view({"post": "release"}), name="api-release-worker"),
    path("devices", Devices.as_view({"get": "index"}), name="api-devices"),
    path("devices/<str:gpu>", Devices.as_view({"get": "show"}), name="api-device"),
    path("devices/<str:gpu>/release", Devices.as_view({"post": "release"}), name="api-release-device"),
    path("workers/<str:worker>/evict", Steering.as_view({"post": "evict"}), name="api-evict"),
    path("keys", Keys.as_view({"get": "index", "post": "create"}), name="api-keys"),
    path("keys/<str:kid>", Keys.as_view({"get": "show"}), name="api-key"),
    path("unknown-keys", Keys.as_view({"get": "index_unknown"}), name="api-unknown-keys"),
    path("keys/<str:kid>/adopt", Keys.as_view({"post": "adopt"}), name="api-adopt-key"),
    path("keys/<str:kid>/rotate", Keys.as_view({"post": "rotate"}), name="api-rotate-key"),
    path("keys/<str:kid>/revoke", Keys.as_view({"post": "revoke"}), name="api-revoke-key"),
    path("accounts", Accounts.as_view({"get": "index", "post": "create"}), name="api-accounts"),
    path("accounts/<str:account_id>", Accounts.as_view({"get": "show", "patch": "change"}), name="api-account"),
    path("accounts/<str:account_id>/disabled", Accounts.as_view({"put": "disable"}), name="api-disable-account"),
    path("accounts/<str:account_id>/delete", Accounts.as_view({"post": "remove"}), name="api-delete-account"),
    path("accounts/<str:account_id>/webhook-hosts", Webhooks.as_view({"put": "allow_hosts"}), name="api-webhook-hosts"),
    path("subscriptions", Subscriptions.as_view({"get": "index", "post": "create"}), name="api-subscriptions"),
    path(
        "subscriptions/<str:subscription_id>",
        Subscriptions.as_view({"get": "show", "delete": "remove"}),
        name="api-subscription",
    ),
    path(
        "subscriptions/<str:subscription_id>/enabled",
        Subscriptions.as_view({"put": "switch"}),
        name="api-switch-subscription",
    ),
    path("webhooks", Webhooks.as_view({"get": "index", "post": "create"}), name="api-webhooks"),
    path("webhooks/<str:hook>", Webhooks.as_view({"get": "show", "delete": "remove"}), name="api-webhook"),
    path("webhooks/<str:hook>/enabled", Webhooks.as_view({"put": "switch"}), name="api-switch-webhook"),
    path("webhooks/<str:hook>/rotate", Webhooks.as_view({"post": "rotate"}), name="api-rotate-webhook"),
    path("webhooks/<str:hook>/attempts", Webhooks.as_view({"get": "attempts"}), name="api-webhook-attempts"),
    path("webhooks/<str:hook>/deliver", Webhooks.as_view({"post": "deliver"}), name="api-deliver-again"),
    path("batches", Batches.as_view({"get": "index"}), name="api-batches"),
    path("batches/<str:key>", Batches.as_view({"get": "show"}), name="api-batch"),
    path("batches/<str:key>/asked", Batches.as_view({"put": "steer"}), name="api-steer-batch"),
    path("queues", Queues.as_view({"get": "index", "post": "create"}), name="api-queues"),
    path(
        "queues/<str:name>",
        Queues.as_view({"get": "show", "patch": "change", "delete": "remove"}),
        name="api-queue",
    ),
    path("queues/<str:name>/purge", Queues.as_view({"post": "purge"}), name="api-purge-queue"),
    path("queues/<str:name>/redrive", Queues.as_view({"post": "redrive"}), name="api-redrive-queue"),
    path("queues/<str:name>/reopen", Queues.as_view({"post": "reopen"}), name="api-reopen-queue"),
    path("accounts/<str:account_id>/use", Usage.as_view({"get": "of_account"}), name="api-account-use"),
    path("keys/<str:kid>/use", Usage.as_view({"get": "of_key"}), name="api-key-use"),
    path("use", Usage.as_view({"get": "index"}), name="api-use"),
    path("jobs", views.Jobs.as_view({"get": "index"}), name="api-jobs"),
    path("jobs/-/errors", views.Jobs.as_view({"get": "errors"}), name="api-job-errors"),
    path("jobs/<str:job_id>", views.Jobs.as_view({"get": "show"}), name="api-job"),
    path("jobs/<str:job_id>/cancel", JobActs.as_view({"post": "cancel"}), name="api-cancel-job"),
    path("jobs/<str:job_id>/retry", JobActs.as_view({"post": "retry"}), name="api-retry-job"),
    path("jobs/<str:job_id>/change", JobActs.as_view({"post": "change"}), name="api-change-job"),
    path("jobs/<str:job_id>/delete", JobActs.as_view({"post": "delete"}), name="api-delete-job"),
    path("selections", Selections.as_view({"get": "index", "post": "create"}), name="api-selections"),
    path("selections/<str:selection_id>", Selections.as_view({"get": "show"}), name="api-selection"),
    path("selections/<str:selection_id>/items", Selections.as_view({"get": "items"}), name="api-selection-items"),
    path("selections/<str:selection_id>/start", Selections.as_view({"post": "start"}), name="api-start-selection"),
    path("selections/<str:selection_id>/stop", Selections.as_view({"post": "stop"}), name="api-stop-selection"),
    path("jobs/<str:job_id>/input", Payloads.as_view({"get": "input"}), name="api-job-input"),
    path("jobs/<str:job_id>/output", Payloads.as_view({"get": "output"}), name="api-job-output"),
    path("dead-letters", DeadLetters.as_view({"get": "index"}), name="api-dead-letters"),
    # No job's id is one of these words.
    path("dead-letters/groups", DeadLetters.as_view({"get": "groups"}), name="api-dead-letter-groups"),
    path("dead-letters/redrive", DeadLetters.as_view({"post": "redrive_many"}), name="api-redrive-dead-letters"),
    path("dead-letters/discard", DeadLetters.as_view({"post": "discard_many"}), name="api-discard-dead-letters"),
    path("dead-letters/<str:job_id>", DeadLetters.as_view({"get": "show"}), name="api-dead-letter"),
    path("dead-letters/<str:job_id>/redrive", DeadLetters.as_view({"post": "redrive"}), name="api-redrive-dead-letter"),
    path("dead-letters/<str:job_id>/discard", DeadLetters.as_view({"post": "discard"}), name="api-discard-dead-letter"),
    path("views", Views.as_view({"get": "index", "post": "save"}), name="api-views"),
    path("views/<str:view_id>", Views.as_view({"delete": "remove"}), name="api-view"),
    path("audit", Audit.as_view({"get": "index"}), name="api-audit"),
    path("exports/<str:file>", Audit.as_view({"get": "export"}), name="api-export"),
    path("audit/<str:number>/undo", Undo.as_view({"post": "undo"}), name="api-undo"),
    path("users", Users.as_view({"get": "index", "post": "create"}), name="api-users"),
    path("users/<str:username>", Users.as_view({"get": "show"}), name="api-user"),
    path("users/<str:username>/role", Users.as_view({"put": "set_role"}), name="api-user-role"),
    path("users/<str:username>/models", Users.as_view({"put": "set_models"}), name="api-user-models"),
    path("users/<str:username>/active", Users.as_view({"put": "set_active"}), name="api-user-active"),
]
