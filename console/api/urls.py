"""Routes of the REST API."""

from django.urls import path
from rest_framework.parsers import MultiPartParser

from console.api import docs, views
from console.api.accounts import Accounts
from console.api.deadletters import DeadLetters
from console.api.keys import Keys
from console.api.repositories import Repositories

urlpatterns = [
    path("", docs.page, name="api-docs"),
    path("schema", views.Schema.as_view(), name="api-schema"),
    path("me", views.Console.as_view({"get": "me"}), name="api-me"),
    path("models", views.Models.as_view({"get": "index", "post": "register"}), name="api-models"),
    path("models/<str:name>", views.Models.as_view({"get": "show", "patch": "change"}), name="api-model"),
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
    path("models/<str:name>/approval", views.Models.as_view({"put": "approve"}), name="api-approval"),
    path("models/<str:name>/default", views.Models.as_view({"put": "set_default"}), name="api-default"),
    path("models/<str:name>/labels/<str:label>", views.Models.as_view({"put": "set_label"}), name="api-label"),
    path("models/<str:name>/pause", views.Models.as_view({"put": "pause"}), name="api-pause"),
    path("repositories", Repositories.as_view({"get": "index", "post": "add"}), name="api-repositories"),
    path(
        "repositories/<str:name>",
        Repositories.as_view({"get": "show", "patch": "change", "delete": "remove"}),
        name="api-repository",
    ),
    path("workers/<str:worker>/drain", views.Workers.as_view({"put": "drain"}), name="api-drain"),
    path("keys", Keys.as_view({"get": "index", "post": "create"}), name="api-keys"),
    path("keys/<str:kid>", Keys.as_view({"get": "show"}), name="api-key"),
    path("unknown-keys", Keys.as_view({"get": "index_unknown"}), name="api-unknown-keys"),
    path("keys/<str:kid>/adopt", Keys.as_view({"post": "adopt"}), name="api-adopt-key"),
    path("keys/<str:kid>/rotate", Keys.as_view({"post": "rotate"}), name="api-rotate-key"),
    path("keys/<str:kid>/revoke", Keys.as_view({"post": "revoke"}), name="api-revoke-key"),
    path("accounts", Accounts.as_view({"get": "index", "post": "create"}), name="api-accounts"),
    path("accounts/<str:account_id>", Accounts.as_view({"get": "show", "patch": "change"}), name="api-account"),
    path("jobs", views.Jobs.as_view({"get": "index"}), name="api-jobs"),
    path("jobs/<str:job_id>", views.Jobs.as_view({"get": "show"}), name="api-job"),
    path("jobs/<str:job_id>/cancel", views.Jobs.as_view({"post": "cancel"}), name="api-cancel-job"),
    path("dead-letters", DeadLetters.as_view({"get": "index"}), name="api-dead-letters"),
    path("dead-letters/<str:job_id>", DeadLetters.as_view({"get": "show"}), name="api-dead-letter"),
    path("dead-letters/<str:job_id>/redrive", DeadLetters.as_view({"post": "redrive"}), name="api-redrive-dead-letter"),
    path("dead-letters/<str:job_id>/discard", DeadLetters.as_view({"post": "discard"}), name="api-discard-dead-letter"),
    path("audit", views.Console.as_view({"get": "audit"}), name="api-audit"),
]
