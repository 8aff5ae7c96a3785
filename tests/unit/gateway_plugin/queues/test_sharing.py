"""Which watch of a group gets the next item."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as some

from gateway_plugin.queues.items import Item
from gateway_plugin.queues.watching.openwatch import OpenWatch, Watch
from gateway_plugin.queues.watching.sharing import Sharing

ITEM = Item(index=1, tags={"colour": "red"}, data=b"")


class Stand:
    """A watch with so many free slots."""

    def __init__(self, slots: int, **tags: str) -> None:
        self.slots = slots
        self.noted = self.turn = 0
        self.watch = Watch(tags=tags)


def stand(slots: int, **tags: str) -> OpenWatch:
    return cast("OpenWatch", Stand(slots, **tags))


def take(sharing: Sharing, item: Item = ITEM) -> OpenWatch | None:
    """Give an item to the watch that is next."""
    found = sharing.find(item)
    if found is not None:
        cast("Stand", found).slots -= 1
        sharing.note(found)
    return found


def free_up(sharing: Sharing, watch: OpenWatch) -> None:
    cast("Stand", watch).slots += 1
    sharing.note(watch)


def test_the_watch_with_the_most_free_slots_is_next_and_of_several_the_one_that_waits_longest() -> None:
    sharing, one, two = Sharing(), stand(1), stand(3)
    sharing.add(one)
    sharing.add(two)
    assert sharing.free == 4
    assert [take(sharing) for _ in range(5)] == [two, two, one, two, None]
    assert sharing.free == 0


def test_a_watch_that_was_free_before_goes_behind_those_that_have_waited_since() -> None:
    sharing, slow, other = Sharing(), stand(1), stand(1)
    sharing.add(slow)
    assert take(sharing) is slow
    sharing.add(other)
    free_up(sharing, slow)
    assert take(sharing) is other


def test_an_item_goes_to_a_watch_that_asks_for_its_tags_only() -> None:
    sharing, blue, red = Sharing(), stand(5, colour="blue"), stand(1, colour="red")
    sharing.add(blue)
    sharing.add(red)
    assert sharing.is_wanted(ITEM)
    assert [take(sharing), take(sharing)] == [red, None]
    assert sharing.free == 5
    assert take(sharing, Item(index=2, tags={"colour": "blue"}, data=b"")) is blue, "passed over, not forgotten"
    sharing.remove(red)
    assert not sharing.is_wanted(ITEM)


def test_a_watch_that_is_gone_gets_nothing_and_counts_for_nothing() -> None:
    sharing, gone = Sharing(), stand(2)
    sharing.add(gone)
    sharing.remove(gone)
    sharing.remove(gone)
    sharing.note(gone)
    assert (sharing.free, len(sharing), take(sharing)) == (0, 0, None)


@given(some.lists(some.tuples(some.integers(0, 4), some.sampled_from(["take", "free", "remove", "add"])), max_size=200))
def test_what_is_free_is_always_the_sum_and_the_next_one_has_the_most(acts: list[tuple[int, str]]) -> None:
    sharing, watches = Sharing(), [stand(2) for _ in range(5)]
    for watch in watches:
        sharing.add(watch)
    for number, act in acts:
        watch = watches[number]
        if act == "take":
            most = max((one.slots for one in sharing), default=0)
            found = sharing.find(ITEM)
            assert (found.slots if found else 0) == most
            take(sharing)
        elif act == "free":
            free_up(sharing, watch)
        elif act == "remove":
            sharing.remove(watch)
        else:
            sharing.add(watch)
        assert sharing.free == sum(one.slots for one in sharing)
