"""What operators ask of workers and models, and of the memory of devices, beside what placement and eviction decide."""

from signalbox.wire.messages import Doc


class Desired(Doc, frozen=True, kw_only=True):
    """KV ``desired``: what an operator decided of a worker or a model. Key ``worker.<token>`` or ``model.<token>``.

    is_draining: worker stops pulling. is_paused: no new runs of this model.
    """

    is_draining: bool = False
    is_paused: bool = False
    actor: str = ""
    reason: str = ""
    updated_at: float = 0.0


class Prefetch(Doc, frozen=True, kw_only=True):
    """KV ``desired``, key ``prefetch.<token>``: a model to load ahead of need, on the devices that it is placed on.

    version: 0 = the one that requests get. until: UTC seconds. by: who asked. hosts: ids, empty = all.
    """

    model: str = ""
    version: int = 0
    until: float = 0.0
    by: str = ""
    hosts: tuple[str, ...] = ()


class Pin(Doc, frozen=True, kw_only=True):
    """KV ``desired``, key ``pin.<token>``: a model that is loaded and stays on the devices that it is placed on.

    version: 0 = the one that requests get. hosts: ids, empty = all. at: UTC seconds; the first one pinned has the room
    that there is for pins. is_on: False = it was pinned once.
    """

    model: str = ""
    version: int = 0
    hosts: tuple[str, ...] = ()
    by: str = ""
    at: float = 0.0
    is_on: bool = False


class Evict(Doc, frozen=True, kw_only=True):
    """Core message to one worker: a version shall leave its device's memory, after the runs that use it."""

    model: str
    version: int
    by: str = ""
