"""Units of a bounded resource that callers hold for a while: a bound for all, and a share for each account.

An account may hold no more than is still free. So one account alone gets half of all units, each of two gets a third,
and one that holds nothing always finds some: the dynamic thresholds of :mod:`gateway_plugin.admission.fairness`.
"""

from typing import Final, Self

from signalbox.program.errors import LimitExceeded, Unavailable

_RETRY_AFTER_S: Final = 1.0


class Pool:
    """A fixed number of units for all accounts. For one thread.

    bound: names the bound in metrics and errors. of_all, of_account: why there is none left, as a sentence without
    its stop. mend: what the caller can do about its account's, a whole sentence.
    """

    def __init__(self, size: int, *, bound: str, of_all: str, of_account: str, mend: str) -> None:
        self._size = size
        self._bound = bound
        self._of_all = of_all
        self._of_account = of_account
        self._mend = mend
        self._held: dict[str, int] = {}
        self.held = 0

    @property
    def free(self) -> int:
        """Units that no account holds."""
        return self._size - self.held

    def of(self, account: str) -> int:
        """Units that an account holds."""
        return self._held.get(account, 0)

    def take(self, account: str, units: int = 1, *, most: int = 0) -> None:
        """Hold units until :meth:`release`. most: what this account may hold, 0 = no more than is free.

        Raises :class:`Unavailable` where all is held, and :class:`LimitExceeded` where the account has its share.
        """
        if not units:
            return
        free, own = self._size - self.held, self._held.get(account, 0)
        if units > free:
            raise Unavailable(f"{self._of_all}; nothing was accepted.", retry_after_s=_RETRY_AFTER_S, bound=self._bound)
        share = min(free, most or free)
        if own + units > share:
            raise LimitExceeded(
                f"{self._of_account}; nothing was accepted. {self._mend}",
                retry_after_s=_RETRY_AFTER_S,
                bound=self._bound,
                held=own,
                limit=share,
            )
        self._held[account] = own + units
        self.held += units

    def release(self, account: str, units: int = 1) -> None:
        """Release what :meth:`take` took."""
        if not units:
            return
        self.held -= units
        left = self._held[account] - units
        if left:
            self._held[account] = left
        else:
            del self._held[account]


class PoolShare:
    """What one request holds of a pool for its account, until the end of ``with``."""

    __slots__ = ("_account", "_pool", "_units")

    def __init__(self, pool: Pool, account: str) -> None:
        self._pool = pool
        self._account = account
        self._units = 0

    def take(self, units: int) -> None:
        """Hold more units. Raises as :meth:`Pool.take`."""
        self._pool.take(self._account, units)
        self._units += units

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.release(self._account, self._units)


def bodies_pool(size_bytes: int) -> Pool:
    """The bytes of all bodies in flight."""
    return Pool(
        size_bytes,
        bound="bodies",
        of_all="As many bytes of bodies are in flight as may be",
        of_account="As many bytes of your account's bodies are in flight as may be now",
        mend="Send fewer large bodies at once.",
    )
