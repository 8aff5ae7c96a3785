"""The projector's cursor, and the losses of NATS that it has found."""

from django.db import models


class Cursor(models.Model):
    """One row. seq: last sequence of STATE that is in the tables, written in their transaction.

    stream_created: which STATE that is, by when it was created; another one is another history. queue_seq,
    queue_created: the same of JOBS. resyncs: how often STATE was read from its beginning. again_seq: ends up to this
    sequence may have been added up before STATE was read from its beginning; again_since: the oldest job was created
    then that had a row and had ended.
    """

    seq = models.PositiveBigIntegerField(default=0)
    stream_created = models.CharField(max_length=40, blank=True)
    queue_seq = models.PositiveBigIntegerField(default=0)
    queue_created = models.CharField(max_length=40, blank=True)
    at = models.DateTimeField(null=True)
    resyncs = models.PositiveIntegerField(default=0)
    again_seq = models.PositiveBigIntegerField(default=0)
    again_since = models.DateTimeField(null=True)

    class Meta:
        """Internal."""

        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.seq}"


class Damage(models.Model):
    """What was last found to be lost of a stream, for operators. The jobs that it touched are counted when it is shown.

    what: words. results: ended jobs whose results went with it.
    """

    stream = models.CharField(primary_key=True, max_length=20)
    at = models.DateTimeField()
    what = models.CharField(max_length=200)
    results = models.PositiveIntegerField(default=0)

    class Meta:
        """Internal."""

        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.stream}: {self.what}"
