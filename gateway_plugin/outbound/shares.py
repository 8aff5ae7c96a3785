"""How much of ``RESULTS`` each account has, so that its oldest ends go and never another account's. Pure."""

from collections import deque
from collections.abc import Iterator
from typing import Final

STEPS: Final = 10
"""An account's ends are counted, and go, in steps of about such a part of its share."""


class _Account:
    """steps: of each its last sequence and its bytes, oldest first."""

    __slots__ = ("steps", "total")

    def __init__(self) -> None:
        self.steps: deque[list[int]] = deque()
        self.total = 0


class AccountShares:
    """Bytes of each account in ``RESULTS``. most: what one may have."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._step = max(1, most // STEPS)
        self._accounts: dict[str, _Account] = {}

    def add(self, account: str, seq: int, size: int) -> None:
        """A message of an account lies at ``seq``; they come in order, or nearly."""
        of = self._accounts.setdefault(account, _Account())
        of.total += size
        if of.steps and of.steps[-1][1] + size <= self._step:
            of.steps[-1][0] = max(seq, of.steps[-1][0])
            of.steps[-1][1] += size
        else:
            of.steps.append([seq, size])

    def forget_below(self, first_seq: int) -> None:
        """What lay below the stream's first sequence has gone by its age."""
        for account, of in list(self._accounts.items()):
            while of.steps and of.steps[0][0] < first_seq:
                of.total -= of.steps.popleft()[1]
            if not of.steps:
                del self._accounts[account]

    def above(self) -> Iterator[str]:
        """Accounts that have more than their share."""
        return (account for account, of in list(self._accounts.items()) if of.total > self._most)

    def largest(self) -> str | None:
        """The account that has the most; None where no account has anything."""
        return max(self._accounts, key=lambda account: self._accounts[account].total, default=None)

    def held(self, account: str) -> int:
        """Bytes of an account."""
        of = self._accounts.get(account)
        return of.total if of is not None else 0

    def give_up(self, account: str) -> int:
        """Have an account's oldest step go, and as many more as it has above nine tenths of its share.

        Returns the last sequence of what goes. The account has something.
        """
        of = self._accounts[account]
        last, size = of.steps.popleft()
        of.total -= size
        while of.steps and of.total > self._most - self._step:
            last, size = of.steps.popleft()
            of.total -= size
        if not of.steps:
            del self._accounts[account]
        return last
