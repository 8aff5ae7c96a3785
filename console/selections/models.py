"""Selections as rows: what is to be done, to which jobs, and what came of each."""

from django.db import models
from django.utils import timezone


class Selection(models.Model):
    """Jobs chosen at a moment, for one act.

    chosen: nothing is done yet, whoever chose looks at it. waiting: started, and no program has begun it. stopped: what
    was not begun is left. words: which jobs, for people. options: of the act (``priority``, ``with_version``). total:
    items; done and failed: of them those that were acted on and those that were refused. holder, held_until: the
    program that works through it, and until when nobody else may.
    """

    CHOSEN = "chosen"
    WAITING = "waiting"
    RUNNING = "running"
    STOPPED = "stopped"
    ENDED = "ended"

    id = models.CharField(primary_key=True, max_length=12)
    act = models.CharField(max_length=10)
    options = models.JSONField(default=dict)
    words = models.CharField(max_length=2200)
    filter_text = models.CharField(max_length=2100, blank=True)
    as_of = models.DateTimeField(default=timezone.now, db_index=True)
    total = models.PositiveIntegerField(default=0)
    done = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    state = models.CharField(max_length=7, default=CHOSEN)
    actor = models.ForeignKey("accounts.User", null=True, on_delete=models.PROTECT)
    actor_name = models.CharField(max_length=150)
    reason = models.CharField(max_length=200, blank=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    stopped_by = models.CharField(max_length=150, blank=True)
    holder = models.CharField(max_length=32, blank=True)
    held_until = models.DateTimeField(null=True)

    class Meta:
        """Newest first."""

        default_permissions = ()
        ordering = ("-as_of", "-id")
        indexes = (models.Index(fields=("state", "started_at"), name="selection_by_state"),)

    def __str__(self) -> str:
        return f"{self.id} {self.act} {self.state}"

    @property
    def is_open(self) -> bool:
        """Whether it is started, and neither stopped nor at its end."""
        return self.state in {self.WAITING, self.RUNNING}

    @property
    def left(self) -> int:
        """Jobs that were not acted on."""
        return self.total - self.done - self.failed

    @property
    def percent(self) -> int:
        """How much of it is over."""
        return 100 * (self.done + self.failed) // self.total if self.total else 100


class SelectionItem(models.Model):
    """One job of a selection. outcome: empty = not acted on. note: why it was refused, or what came of it."""

    DONE = "done"
    REFUSED = "refused"

    selection = models.ForeignKey(Selection, on_delete=models.CASCADE, related_name="items", db_index=False)
    job_id = models.CharField(max_length=36)
    outcome = models.CharField(max_length=7, blank=True)
    note = models.CharField(max_length=300, blank=True)

    class Meta:
        """A job is in a selection once. By a job: which selections have it. By outcome: what is next."""

        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("job_id", "selection"), name="selection_has_job"),)
        indexes = (models.Index(fields=("selection", "outcome", "id"), name="selection_items"),)

    def __str__(self) -> str:
        return f"{self.job_id} {self.outcome}"
