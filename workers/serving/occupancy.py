"""What has kept the jobs of one session from beginning, summed up, so that each can say what it waited for. No I/O."""

from typing import Final

AT_RISK: Final = " "
"""Stands for the lease: nothing may begin while it is at risk. No model has such a name."""


class Occupancy:
    """The seconds that each model has had the runner, and those in which nothing was there and nothing might begin."""

    def __init__(self) -> None:
        self.holder = ""
        """Who keeps others from beginning now: a model, the lease, or nobody."""
        self._since_s = 0.0
        self._all_s = 0.0
        self._by: dict[str, float] = {}

    def passes(self, holder: str, now_s: float) -> None:
        """Note who has it from now on."""
        if self.holder:
            spent_s = now_s - self._since_s
            self._all_s += spent_s
            self._by[self.holder] = self._by.get(self.holder, 0.0) + spent_s
        self.holder, self._since_s = holder, now_s

    def others_s(self, model: str, now_s: float) -> tuple[float, float]:
        """Seconds so far of other models, and of the lease. The difference of two readings is what lay between them."""
        by, holder = self._by, self.holder
        lease_s = by.get(AT_RISK, 0.0)
        others_s = self._all_s - by.get(model, 0.0) - lease_s
        if holder and holder != model:
            spent_s = now_s - self._since_s
            return (others_s, lease_s + spent_s) if holder == AT_RISK else (others_s + spent_s, lease_s)
        return others_s, lease_s
