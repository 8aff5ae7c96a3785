"""What a consumer stores of itself, and tells: apart from what it works with, which may be ahead of it.

After nats-server 2.15's ``consumerFileStore``: ``UpdateDelivered``, ``UpdateAcks``, ``Update``.
"""


class ConsumerState:
    """pending: stream sequence to number of its first delivery. Floors: everything up to there is done."""

    __slots__ = ("delivered", "delivered_seq", "floor", "floor_seq", "pending")

    def __init__(self, seq: int) -> None:
        self.pending: dict[int, int] = {}
        self.delivered, self.delivered_seq = 0, seq
        self.floor, self.floor_seq = 0, seq

    def deliver(self, delivery: int, seq: int) -> None:
        """The delivery with this number has been sent."""
        if delivery <= self.floor:
            return
        if seq > self.delivered_seq:
            self.pending[seq] = delivery
            self.delivered_seq = seq
        self.delivered = max(self.delivered, delivery)

    def skip(self, delivery: int, seq: int) -> None:
        """One that needs no acknowledgement has been sent."""
        self.delivered = self.floor = max(self.delivered, delivery)
        self.delivered_seq = self.floor_seq = max(self.delivered_seq, seq)

    def end(self, delivery: int, seq: int) -> None:
        """A message is done with, however."""
        if delivery <= self.floor or seq not in self.pending:
            return
        delivery = min(delivery, self.pending.pop(seq))
        if not self.pending:
            self.floor, self.floor_seq = self.delivered, self.delivered_seq
        elif delivery == self.floor + 1:
            self.floor, self.floor_seq = raised(delivery, seq, self.pending)

    def replace(self, delivered: tuple[int, int], floor: tuple[int, int], pending: dict[int, int]) -> None:
        """Store what the consumer works with, as it does after a purge; refused where that is older or odd."""
        if floor[0] > delivered[0] or floor[1] > delivered[1]:
            return
        if delivered[0] < self.delivered or floor[1] < self.floor_seq:
            return
        if any(not floor[1] < seq <= delivered[1] for seq in pending):
            return
        self.delivered, self.delivered_seq = delivered
        self.floor, self.floor_seq = floor
        self.pending = dict(pending)


def raised(delivery: int, seq: int, pending: dict[int, int]) -> tuple[int, int]:
    """The floor that ``seq`` was just above: up to what is still open beyond it."""
    following = min((other for other in pending if other > seq), default=0)
    return (pending[following] - 1, following - 1) if following else (delivery, seq)
