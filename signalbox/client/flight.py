"""Calls in flight for :meth:`Client.map`: never more than so many that run or wait to be handed out."""

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from signalbox.program.errors import SignalboxError


class _Call(Protocol):
    """A future, of threads or of asyncio."""

    def done(self) -> bool: ...
    def result(self) -> Any: ...


C = TypeVar("C", bound=_Call)
_NOTHING: Final = object()


class Flight(Generic[C]):
    """Items and their calls. most: in flight. is_ordered: they land as they were taken, else as they are done."""

    def __init__(self, most: int, *, is_ordered: bool) -> None:
        if most < 1:
            raise ValueError(f"in_flight must be at least 1, not {most}")
        self._most = most
        self._is_ordered = is_ordered
        self._flying: dict[C, Any] = {}

    def fill(self, source: Iterator[Any], start: Callable[[Any], C]) -> bool:
        """Start calls as long as there is room and more to call. Whether any is in flight."""
        while len(self._flying) < self._most and (item := next(source, _NOTHING)) is not _NOTHING:
            self._flying[start(item)] = item
        return bool(self._flying)

    @property
    def calls(self) -> list[C]:
        """Those in flight."""
        return list(self._flying)

    @property
    def next_calls(self) -> list[C]:
        """Those of which one has to be done before anything can land."""
        return self.calls[:1] if self._is_ordered else self.calls

    def landed(self, *, keep_errors: bool) -> Iterator[tuple[Any, Any]]:
        """Items and answers of calls that are done. Raises their errors, unless these are kept as answers."""
        while (done := next((one for one in self.next_calls if one.done()), None)) is not None:
            item = self._flying.pop(done)
            try:
                answer = done.result()
            except SignalboxError as error:
                if not keep_errors:
                    raise
                answer = error
            yield item, answer
