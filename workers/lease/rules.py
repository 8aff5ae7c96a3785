"""The constants of the lease and what they must satisfy among themselves (docs/lease.md, Constants)."""

from typing import Annotated

import msgspec

from signalbox.program.errors import Misconfigured

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, all of them.

    heartbeat_s: between renewals. request_timeout_s: of one write. fence_s: the runner dies this long after the last
    acknowledged renewal was sent. kill_s: from SIGKILL to process gone. margin_s: for clock rates and the server's TTL
    tick. failover_s: longest a JetStream leader is away (an election takes 4 to 9 s; 0 on a single node). ttl_s: of the
    record. reserved_s: head start of the waiter named next. quantum_s, idle_s: when a holder yields to a waiter.
    recheck_s: backstop read while waiting. lock_wait_s: for the flock after the lease was got; then quarantine_s
    without trying.
    """

    heartbeat_s: Positive = 2.0
    request_timeout_s: Positive = 1.0
    fence_s: Positive = 12.0
    kill_s: Positive = 3.0
    margin_s: float = 5.0
    failover_s: float = 9.0
    ttl_s: int = 20
    reserved_s: Positive = 2.0
    quantum_s: Positive = 30.0
    idle_s: float = 0.2
    recheck_s: Positive = 5.0
    lock_wait_s: Positive = 10.0
    quarantine_s: Positive = 60.0

    def check(self) -> None:
        """Raises :class:`Misconfigured` naming every inequality that does not hold."""
        rules = {
            "fence_s > failover_s + 1 + request_timeout_s": self.fence_s
            > self.failover_s + bool(self.failover_s) + self.request_timeout_s,
            "fence_s + kill_s + margin_s <= ttl_s": self.fence_s + self.kill_s + self.margin_s <= self.ttl_s,
            # Clocks that are wrong by one in a hundred, each its own way: see docs/simulation.md, Clock rates.
            "0.02 * ttl_s <= margin_s": 0.02 * self.ttl_s <= self.margin_s,
            "4 * heartbeat_s <= fence_s": 4 * self.heartbeat_s <= self.fence_s,
            "ttl_s >= 1": self.ttl_s >= 1,
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            msg = f"The constants of the lease do not fit: {'; '.join(broken)}."
            raise Misconfigured(msg, broken=broken)
