"""What a gateway asks of the console for the owner of an API key, and what it is answered."""

from typing import Final, Literal

from signalbox.wire.messages import Doc
from signalbox.wire.servingconfig import ServingModel

SCOPE: Final = "models:manage"
"""The scope of a key whose owner may have models loaded, unloaded and configured."""
LIST_SCOPE: Final = "jobs:read"
"""The scope of a key whose owner may list jobs."""
MOST_BYTES: Final = 256 * 1024
"""Of a question, and of an answer: a page of jobs that is larger ends sooner, and its cursor goes on there."""
MOST_LISTED: Final = 1000
"""Jobs of one page."""
OK: Final = "ok"
What = Literal["reload", "load", "unload", "jobs"]


class JobQuery(Doc, frozen=True, kw_only=True):
    """Which jobs of the account are listed, newest first; what is empty or 0 does not choose.

    tags: all of them. error: a part of the error's code or message, in whatever case. since, until: of ``created_at``,
    UTC seconds, from the one and before the other. with_sync: synchronous predictions too. limit: most jobs of the
    page. cursor: of the page before; empty = the first.
    """

    states: tuple[str, ...] = ()
    model: str = ""
    tags: tuple[str, ...] = ()
    error: str = ""
    since: float = 0.0
    until: float = 0.0
    with_sync: bool = False
    limit: int = 50
    cursor: str = ""


class ListedJob(Doc, frozen=True, kw_only=True):
    """One job of a list, as the console knows it. Instants in UTC seconds. not_before: 0 = at once."""

    id: str
    model: str
    version: int
    state: str
    priority: str = "mid"
    attempt: int = 0
    tags: tuple[str, ...] = ()
    created_at: float
    finished_at: float | None = None
    deadline_at: float | None = None
    not_before: float = 0.0
    error_code: str = ""
    error_message: str = ""


class JobPage(Doc, frozen=True, kw_only=True):
    """A page of a list. cursor: of the next page; empty = there is none.

    as_of: what happened up to then is in it, UTC seconds; later changes may be. looked_until: jobs created before were
    not looked at, though the page is not full, and the cursor goes on there; 0 = all were, or it is full.
    """

    jobs: tuple[ListedJob, ...]
    cursor: str = ""
    as_of: float
    looked_until: float = 0.0


class ConsoleAsk(Doc, frozen=True, kw_only=True):
    """A question, as a request on ``ask.console.<what>``. The console looks the key up in its own rows.

    reload: ``models`` are those that the models of a configuration become; imported ones that it omits are disabled.
    load, unload: of ``model``. until: UTC seconds, for how long a load is kept ahead of need. jobs: those that the
    list of ``jobs`` shows.
    """

    key_id: str
    account: str
    what: What
    model: str = ""
    until: float = 0.0
    models: tuple[ServingModel, ...] = ()
    jobs: JobQuery | None = None


class ConsoleAnswer(Doc, frozen=True, kw_only=True):
    """The answer. status: ``ok``, or the code of an error. text: what was done, or cause and mend of the error.

    page: of a list.
    """

    status: str
    text: str = ""
    retry_after_s: float | None = None
    page: JobPage | None = None
