"""Routes of the pages."""

from django.contrib.auth.views import LogoutView
from django.urls import include, path

from console.pages import (
    accounts,
    audit,
    board,
    catalog,
    deadletters,
    deletion,
    hosts,
    jobs,
    keys,
    operators,
    payloads,
    repositories,
    splits,
    steering,
    workers,
)
from console.payloads.stored import Part
from console.web.middleware import HEALTH

_board = [path("", board.board, name="board"), path("live/release", board.release, name="release")]
urlpatterns = [
    path("", include((_board, "live"))),
    path("login", operators.Login.as_view(), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path(HEALTH, operators.health, name="health"),
    path("confirm", operators.confirm_password, name="confirm-password"),
    path("settings", operators.settings_page, name="settings"),
    path("settings/password", operators.change_password, name="change-password"),
    path("settings/tokens", operators.create_token, name="create-token"),
    path("settings/tokens/<str:token_id>/revoke", operators.revoke_token, name="revoke-token"),
    path("settings/read-only", operators.read_only, name="read-only"),
    path("settings/users", operators.users, name="users"),
    path("settings/users/new", operators.create_user, name="create-user"),
    path("settings/users/<str:username>/role", operators.set_role, name="set-role"),
    path("settings/users/<str:username>/active", operators.set_active, name="set-active"),
    path("repositories", repositories.index, name="repositories"),
    # No repository's name begins with "-", so it hides none.
    path("repositories/-/add", repositories.add, name="add-repository"),
    path("repositories/<str:name>", repositories.detail, name="repository"),
    path("repositories/<str:name>/settings", repositories.change_settings, name="repository-settings"),
    path("repositories/<str:name>/undo", repositories.undo, name="undo-repository"),
    path("repositories/<str:name>/remove", repositories.remove, name="remove-repository"),
    path("models", catalog.index, name="models"),
    # No model's name begins with "-", so none hides a model.
    path("models/-/register", catalog.register, name="register-model"),
    path("models/-/upload", catalog.upload, name="upload-model"),
    path("models/-/deleted", deletion.index, name="deleted"),
    path("models/<str:name>", catalog.detail, name="model"),
    path("models/<str:name>/versions/<str:number>", catalog.version, name="version"),
    path("models/<str:name>/delete", deletion.delete_model, name="delete-model"),
    path("models/<str:name>/undo", deletion.undo_model, name="undo-model"),
    path("models/<str:name>/versions/<str:number>/delete", deletion.delete_version, name="delete-version"),
    path("models/<str:name>/versions/<str:number>/undo", deletion.undo_version, name="undo-version"),
    path("models/<str:name>/settings", catalog.change_settings, name="model-settings"),
    path("models/<str:name>/enabled", catalog.set_enabled, name="model-enabled"),
    path("models/<str:name>/replicas", catalog.set_replicas, name="model-replicas"),
    path("models/<str:name>/default", catalog.set_default, name="model-default"),
    path("models/<str:name>/policy", catalog.set_policy, name="model-policy"),
    path("models/<str:name>/label", catalog.set_label, name="model-label"),
    path("models/<str:name>/split", splits.set_split, name="model-split"),
    path("models/<str:name>/split/promote", splits.promote, name="promote-split"),
    path("models/<str:name>/split/roll-back", splits.roll_back, name="roll-back-split"),
    path("models/<str:name>/approve", catalog.approve, name="model-approve"),
    path("models/<str:name>/pause", catalog.pause, name="model-pause"),
    path("models/<str:name>/pin", steering.pin, name="model-pin"),
    path("models/<str:name>/load", steering.load, name="model-load"),
    path("keys", keys.index, name="keys"),
    path("keys/new", keys.create, name="create-key"),
    path("keys/<str:kid>", keys.detail, name="key"),
    path("keys/<str:kid>/created", keys.created, name="key-created"),
    path("keys/<str:kid>/adopt", keys.adopt, name="adopt-key"),
    path("keys/<str:kid>/revoke", keys.revoke, name="revoke-key"),
    path("keys/<str:kid>/rotate", keys.rotate, name="rotate-key"),
    path("keys/<str:kid>/posting", keys.posting, name="key-posting"),
    path("accounts", accounts.index, name="accounts"),
    path("accounts/new", accounts.create, name="create-account"),
    path("accounts/<str:account_id>", accounts.detail, name="account"),
    path("accounts/<str:account_id>/edit", accounts.edit, name="edit-account"),
    path("jobs", jobs.index, name="jobs"),
    path("jobs/-/dead-letters", deadletters.index, name="dead-letters"),
    path("jobs/<str:job_id>", jobs.detail, name="job"),
    *(
        route
        for part in Part
        for route in (
            path(f"jobs/<str:job_id>/{part}", payloads.show, {"part": part.value}, name=f"job-{part}"),
            path(
                f"jobs/<str:job_id>/{part}/images/<str:place>",
                payloads.image,
                {"part": part.value},
                name=f"job-{part}-image",
            ),
        )
    ),
    path("jobs/<str:job_id>/cancel", jobs.cancel, name="cancel-job"),
    path("workers", workers.index, name="workers"),
    path("workers/-/hosts", hosts.index, name="hosts"),
    path("workers/-/hosts/<str:host>", hosts.detail, name="host"),
    path("workers/<str:worker>", workers.detail, name="worker"),
    path("workers/<str:worker>/drain", workers.drain, name="worker-drain"),
    path("workers/<str:worker>/evict", steering.evict, name="worker-evict"),
    path("audit", audit.index, name="audit"),
]
