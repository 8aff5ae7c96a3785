"""Routes of the REST API."""

from django.urls import path

from console.api import accounts, deadletters, docs, keys, views

urlpatterns = [
    path("", docs.page, name="api-docs"),
    path("schema", views.Schema.as_view(), name="api-schema"),
    path("me", views.Me.as_view(), name="api-me"),
    path("models", views.Models.as_view(), name="api-models"),
    path("models/<str:name>", views.ModelDetail.as_view(), name="api-model"),
    path("models/<str:name>/versions", views.Versions.as_view(), name="api-versions"),
    path("models/<str:name>/approval", views.Approval.as_view(), name="api-approval"),
    path("models/<str:name>/default", views.DefaultVersion.as_view(), name="api-default"),
    path("models/<str:name>/labels/<str:label>", views.Label.as_view(), name="api-label"),
    path("models/<str:name>/pause", views.Pause.as_view(), name="api-pause"),
    path("workers/<str:worker>/drain", views.Drain.as_view(), name="api-drain"),
    path("keys", keys.Keys.as_view(), name="api-keys"),
    path("keys/<str:kid>", keys.KeyDetail.as_view(), name="api-key"),
    path("unknown-keys", keys.UnknownKeys.as_view(), name="api-unknown-keys"),
    path("keys/<str:kid>/adopt", keys.KeyAdoption.as_view(), name="api-adopt-key"),
    path("keys/<str:kid>/rotate", keys.KeyRotation.as_view(), name="api-rotate-key"),
    path("keys/<str:kid>/revoke", keys.KeyRevocation.as_view(), name="api-revoke-key"),
    path("accounts", accounts.Accounts.as_view(), name="api-accounts"),
    path("accounts/<str:account_id>", accounts.AccountDetail.as_view(), name="api-account"),
    path("jobs", views.Jobs.as_view(), name="api-jobs"),
    path("jobs/<str:job_id>", views.JobDetail.as_view(), name="api-job"),
    path("jobs/<str:job_id>/cancel", views.JobCancellation.as_view(), name="api-cancel-job"),
    path("dead-letters", deadletters.DeadLetters.as_view(), name="api-dead-letters"),
    path("dead-letters/<str:job_id>", deadletters.DeadLetterDetail.as_view(), name="api-dead-letter"),
    path("dead-letters/<str:job_id>/redrive", deadletters.DeadLetterRedrive.as_view(), name="api-redrive-dead-letter"),
    path("dead-letters/<str:job_id>/discard", deadletters.DeadLetterDiscard.as_view(), name="api-discard-dead-letter"),
    path("audit", views.Audit.as_view(), name="api-audit"),
]
