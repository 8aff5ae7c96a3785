"""The acts of operators, and the four roles that may do them."""

from enum import StrEnum
from typing import Final


class Act(StrEnum):
    """Everything an operator can do in the console. ``view`` acts change nothing."""

    MODELS_VIEW = "models.view"
    MODELS_REGISTER = "models.register"
    MODELS_SETTINGS = "models.settings"
    MODELS_ROLLOUT = "models.rollout"
    MODELS_APPROVE = "models.approve"
    MODELS_DELETE = "models.delete"
    MODELS_TRY = "models.try"
    REPOSITORIES_MANAGE = "repositories.manage"
    KEYS_VIEW = "keys.view"
    KEYS_MANAGE = "keys.manage"
    ACCOUNTS_VIEW = "accounts.view"
    ACCOUNTS_MANAGE = "accounts.manage"
    ACCOUNTS_DELETE = "accounts.delete"
    JOBS_VIEW = "jobs.view"
    JOBS_CANCEL = "jobs.cancel"
    JOBS_RETRY = "jobs.retry"
    JOBS_CHANGE = "jobs.change"
    JOBS_DELETE = "jobs.delete"
    JOBS_PAYLOAD = "jobs.payload"
    JOBS_REDRIVE = "jobs.redrive"
    JOBS_DISCARD = "jobs.discard"
    RESULTS_VIEW = "results.view"
    RESULTS_MANAGE = "results.manage"
    RESULTS_SWITCH = "results.switch"
    RESULTS_DELIVER = "results.deliver"
    BATCHES_STEER = "batches.steer"
    WORKERS_DRAIN = "workers.drain"
    QUEUES_PAUSE = "queues.pause"
    QUEUES_VIEW = "queues.view"
    QUEUES_MANAGE = "queues.manage"
    QUEUES_REDRIVE = "queues.redrive"
    QUEUES_PURGE = "queues.purge"
    LANES_RELEASE = "lanes.release"
    RESIDENCY_LOAD = "residency.load"
    RESIDENCY_PIN = "residency.pin"
    AUDIT_VIEW = "audit.view"
    SYSTEM_VIEW = "system.view"
    SYSTEM_READ_ONLY = "system.read_only"
    USERS_VIEW = "users.view"
    USERS_MANAGE = "users.manage"
    TOKENS_OWN = "tokens.own"
    TOKENS_MANAGE = "tokens.manage"
    VIEWS_OWN = "views.own"
    VIEWS_SHARE = "views.share"

    @property
    def permission(self) -> str:
        """Django's name of the permission."""
        return f"accounts.{self.codename}"

    @property
    def codename(self) -> str:
        """Django's codename of the permission."""
        return self.value.replace(".", "_")

    @property
    def is_view(self) -> bool:
        """Whether the act changes nothing, so that read-only mode allows it."""
        return self.value.endswith(".view")


WORDS: Final[dict[Act, str]] = {
    Act.MODELS_VIEW: "see models",
    Act.MODELS_REGISTER: "register and upload models",
    Act.MODELS_SETTINGS: "change a model's replicas, batching and limits",
    Act.MODELS_ROLLOUT: "choose default versions and labels",
    Act.MODELS_APPROVE: "approve operations of models that others added",
    Act.MODELS_DELETE: "delete models and their versions, and take that back",
    Act.MODELS_TRY: "try models out through the front",
    Act.REPOSITORIES_MANAGE: "add repositories that models come from, and change who may call those models",
    Act.KEYS_VIEW: "see API keys",
    Act.KEYS_MANAGE: "create and revoke API keys",
    Act.ACCOUNTS_VIEW: "see accounts",
    Act.ACCOUNTS_MANAGE: "create accounts and change what they may use and hold",
    Act.ACCOUNTS_DELETE: "disable and delete accounts",
    Act.JOBS_VIEW: "see jobs",
    Act.JOBS_CANCEL: "cancel jobs",
    Act.JOBS_RETRY: "run jobs again that have failed",
    Act.JOBS_CHANGE: "change the priority and the deadline of jobs that wait",
    Act.JOBS_DELETE: "delete jobs for good, with what they hold",
    Act.JOBS_PAYLOAD: "read the inputs and outputs of jobs",
    Act.JOBS_REDRIVE: "redrive dead letters",
    Act.JOBS_DISCARD: "discard dead letters",
    Act.RESULTS_VIEW: "see who gets results, and batches of files",
    Act.RESULTS_MANAGE: "make, change and delete subscriptions and webhooks",
    Act.RESULTS_SWITCH: "switch subscriptions and webhooks on and off",
    Act.RESULTS_DELIVER: "have results delivered to a webhook again",
    Act.BATCHES_STEER: "pause, resume and cancel batches of files",
    Act.WORKERS_DRAIN: "drain workers",
    Act.QUEUES_PAUSE: "pause the queues of models",
    Act.QUEUES_VIEW: "see queues",
    Act.QUEUES_MANAGE: "make, change and delete queues",
    Act.QUEUES_REDRIVE: "redrive rear queues and reopen ended queues",
    Act.QUEUES_PURGE: "purge queues and rear queues",
    Act.LANES_RELEASE: "ask a holder to hand its GPU over",
    Act.RESIDENCY_LOAD: "load models on devices and evict them, by hand",
    Act.RESIDENCY_PIN: "pin models in the memory of devices",
    Act.AUDIT_VIEW: "see the audit",
    Act.SYSTEM_VIEW: "see the state of the system",
    Act.SYSTEM_READ_ONLY: "switch the console to read-only",
    Act.USERS_VIEW: "see operators",
    Act.USERS_MANAGE: "manage operators",
    Act.TOKENS_OWN: "make and revoke own tokens",
    Act.TOKENS_MANAGE: "revoke anybody's tokens",
    Act.VIEWS_OWN: "save views of lists and choose own shortcuts",
    Act.VIEWS_SHARE: "share views of lists with every operator",
}
PERMISSIONS: Final = tuple((act.codename, f"Can {WORDS[act]}") for act in Act)

_VIEWER: Final = frozenset(
    {
        Act.MODELS_VIEW,
        Act.KEYS_VIEW,
        Act.ACCOUNTS_VIEW,
        Act.JOBS_VIEW,
        Act.RESULTS_VIEW,
        Act.QUEUES_VIEW,
        Act.SYSTEM_VIEW,
        Act.TOKENS_OWN,
        Act.VIEWS_OWN,
    }
)
_OPERATOR: Final = _VIEWER | {
    Act.JOBS_CANCEL,
    Act.JOBS_RETRY,
    Act.JOBS_CHANGE,
    Act.JOBS_DELETE,
    Act.JOBS_REDRIVE,
    Act.JOBS_DISCARD,
    Act.RESULTS_SWITCH,
    Act.RESULTS_DELIVER,
    Act.BATCHES_STEER,
    Act.WORKERS_DRAIN,
    Act.QUEUES_PAUSE,
    Act.QUEUES_REDRIVE,
    Act.QUEUES_PURGE,
    Act.LANES_RELEASE,
    Act.RESIDENCY_LOAD,
    Act.AUDIT_VIEW,
    Act.VIEWS_SHARE,
}
_MODEL_MANAGER: Final = _OPERATOR | {
    Act.MODELS_REGISTER,
    Act.MODELS_SETTINGS,
    Act.MODELS_ROLLOUT,
    Act.MODELS_APPROVE,
    Act.MODELS_DELETE,
    Act.MODELS_TRY,
    Act.JOBS_PAYLOAD,
    Act.RESIDENCY_PIN,
    Act.REPOSITORIES_MANAGE,
    Act.QUEUES_MANAGE,
}
ROLES: Final[dict[str, frozenset[Act]]] = {
    "viewer": _VIEWER,
    "operator": _OPERATOR,
    "model manager": _MODEL_MANAGER,
    "admin": frozenset(Act),
}
"""Each role may do all that the one before it may."""
