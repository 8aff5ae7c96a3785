"""Pages and acts that the palette knows, and the right that each asks for."""

from typing import Final, NamedTuple

from console.accounts.acts import Act


class Place(NamedTuple):
    """A page, or an act without a thing. more: words that find it beside its label."""

    label: str
    href: str
    act: Act
    more: str = ""


class Verb(NamedTuple):
    """An act on a thing of a kind. words: each finds it. label, href: with the thing's name in the place of {}.

    In ``#do=pause`` the page opens the form whose address ends so (static/js/palette.js), and sends nothing.
    """

    words: tuple[str, ...]
    kind: str
    act: Act
    label: str
    href: str
    revokes: bool = False


PLACES: Final = (
    Place("Live", "/", Act.SYSTEM_VIEW, "board home gpu lanes alarms queues"),
    Place("Jobs", "/jobs", Act.JOBS_VIEW),
    Place("Failed jobs", "/jobs?state=failed", Act.JOBS_VIEW, "errors"),
    Place("Dead letters", "/jobs/-/dead-letters", Act.JOBS_VIEW),
    Place("Models", "/models", Act.MODELS_VIEW, "versions"),
    Place("Deleted models and versions", "/models/-/deleted", Act.MODELS_VIEW, "undo bring back"),
    Place("Repositories", "/repositories", Act.MODELS_VIEW, "buckets folders"),
    Place("Workers", "/workers", Act.SYSTEM_VIEW, "gpus devices"),
    Place("Scaling", "/workers/-/scaling", Act.SYSTEM_VIEW, "autoscale devices wanted"),
    Place("Hosts and disk caches", "/workers/-/hosts", Act.SYSTEM_VIEW),
    Place("API keys", "/keys", Act.KEYS_VIEW),
    Place("Accounts", "/accounts", Act.ACCOUNTS_VIEW, "customers"),
    Place("Results: subscriptions", "/results", Act.RESULTS_VIEW, "stream readers events"),
    Place("Results: webhooks", "/results/webhooks", Act.RESULTS_VIEW, "deliveries hooks"),
    Place("Results: batches", "/results/batches", Act.RESULTS_VIEW, "files"),
    Place("Queues", "/queues", Act.QUEUES_VIEW, "consumers watches rear items groups"),
    Place("Audit", "/audit", Act.AUDIT_VIEW, "log history changes who"),
    Place("Settings", "/settings", Act.SYSTEM_VIEW, "theme password tokens shortcuts me"),
    Place("Operators", "/settings/users", Act.USERS_VIEW, "users roles people"),
    Place("API documentation", "/api/", Act.SYSTEM_VIEW, "rest openapi"),
)
ACTS: Final = (
    Place("Add model", "/models/-/upload", Act.MODELS_REGISTER, "upload"),
    Place("Register a folder", "/models/-/register", Act.MODELS_REGISTER, "model"),
    Place("Add repository", "/repositories/-/add", Act.REPOSITORIES_MANAGE),
    Place("Create key", "/keys/new", Act.KEYS_MANAGE, "new api"),
    Place("Create account", "/accounts/new", Act.ACCOUNTS_MANAGE, "new customer"),
    Place("Subscribe to ends of jobs", "/results/subscribe", Act.RESULTS_MANAGE, "new subscription results"),
    Place("Create webhook", "/results/new-webhook", Act.RESULTS_MANAGE, "new results"),
    Place("Create queue", "/queues/-/create", Act.QUEUES_MANAGE, "new"),
    Place("Create operator", "/settings/users/new", Act.USERS_MANAGE, "new user"),
    Place("Create token", "/settings#do=tokens", Act.TOKENS_OWN, "new"),
    Place("Change password", "/settings#do=password", Act.TOKENS_OWN),
    Place("Read-only mode", "/settings#do=read-only", Act.SYSTEM_READ_ONLY, "maintenance"),
)
VERBS: Final = (
    Verb(("pause",), "model", Act.QUEUES_PAUSE, "Pause {}", "/models/{}#do=pause"),
    Verb(("resume",), "paused model", Act.QUEUES_PAUSE, "Resume {}", "/models/{}#do=pause"),
    Verb(("drain",), "worker", Act.WORKERS_DRAIN, "Drain {}", "/workers/{}#do=drain"),
    Verb(("resume",), "drained worker", Act.WORKERS_DRAIN, "Resume {}", "/workers/{}#do=drain"),
    Verb(("settings", "change"), "model", Act.MODELS_SETTINGS, "Settings of {}", "/models/{}/settings"),
    Verb(("autoscale",), "model", Act.MODELS_SETTINGS, "Autoscaling of {}", "/models/{}/autoscale"),
    Verb(("replicas", "scale"), "model", Act.MODELS_SETTINGS, "Replicas of {}", "/models/{}#do=replicas"),
    Verb(("default", "roll"), "model", Act.MODELS_ROLLOUT, "Default version of {}", "/models/{}#do=default"),
    Verb(("label",), "model", Act.MODELS_ROLLOUT, "Label of {}", "/models/{}#do=label"),
    Verb(("canary", "split"), "model", Act.MODELS_ROLLOUT, "Canary of {}", "/models/{}#do=split"),
    Verb(("upload", "add"), "model", Act.MODELS_REGISTER, "Upload a version of {}", "/models/-/upload?name={}"),
    Verb(("try",), "model", Act.MODELS_TRY, "Try {}", "/models/{}#do=try"),
    Verb(("pin",), "model", Act.RESIDENCY_PIN, "Pin {}", "/models/{}#do=pin"),
    Verb(("load",), "model", Act.RESIDENCY_LOAD, "Load {}", "/models/{}#do=load"),
    Verb(("delete",), "model", Act.MODELS_DELETE, "Delete {}", "/models/{}#do=delete"),
    Verb(("revoke",), "key", Act.KEYS_MANAGE, "Revoke {}", "/keys/{}#do=revoke", revokes=True),
    Verb(("replace", "rotate"), "key", Act.KEYS_MANAGE, "Replace {}", "/keys/{}#do=rotate"),
    Verb(("edit", "change"), "account", Act.ACCOUNTS_MANAGE, "Edit {}", "/accounts/{}/edit"),
    Verb(("disable",), "account", Act.ACCOUNTS_DELETE, "Disable {}", "/accounts/{}#do=disable"),
    Verb(("delete",), "account", Act.ACCOUNTS_DELETE, "Delete {}", "/accounts/{}#do=delete"),
    Verb(("key", "create"), "account", Act.KEYS_MANAGE, "Create key for {}", "/keys/new?account={}"),
    Verb(("settings", "change"), "queue", Act.QUEUES_MANAGE, "Settings of {}", "/queues/{}/settings"),
    Verb(("delete",), "queue", Act.QUEUES_MANAGE, "Delete {}", "/queues/{}#do=delete"),
    Verb(("cancel",), "job", Act.JOBS_CANCEL, "Cancel {}", "/jobs/{}#do=cancel"),
    Verb(("retry",), "job", Act.JOBS_RETRY, "Retry {}", "/jobs/{}#do=retry"),
)
