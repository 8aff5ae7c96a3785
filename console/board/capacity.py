"""How many devices of each class there are, have a worker, and shall have one. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from console.board.rows import Alarm, Figure, Row
from signalbox.wire.scaling import Host, Scale
from signalbox.wire.workerdocs import Worker

PAGE: Final = "/workers/-/scaling"


class FleetStanding(Row, frozen=True):
    """at: since when something stands otherwise, UTC seconds: a page that shows it looks again."""

    at: float


class Devices(NamedTuple):
    """Devices by class: most that shall have workers (0 = all), how many there are, how many have a worker."""

    most: Mapping[str, int]
    there: Mapping[str, int]
    actual: Mapping[str, int]


def devices_of(most: Mapping[str, int], hosts: Iterable[Host], workers: Iterable[Worker]) -> Devices:
    """The devices of hosts that do not drain. most: by class, in the order in which they are filled."""
    class_of = {each.device.id: each.class_ for host in hosts if not host.is_draining for each in host.devices}
    working = {worker.device.id for worker in workers if worker.state != "draining"}
    names = [*most, *sorted(set(class_of.values()) - most.keys())]
    return Devices(
        {name: most.get(name, 0) for name in names},
        {name: sum(one == name for one in class_of.values()) for name in names},
        {name: sum(one == name and device in working for device, one in class_of.items()) for name in names},
    )


def alarms(scale: Scale | None) -> dict[str, Alarm]:
    """One for each class of which fewer devices have workers than its models ask for, and could use at once."""
    classes = scale.classes if scale is not None else {}
    return {
        f"capacity:{name}": Alarm(
            "warning",
            f"{name or 'Devices'}: {one.reason}.",
            href=PAGE,
            what=name,
            hint="Add a host, or raise SIGNALBOX_CONSOLE_CLASSES.",
        )
        for name, one in classes.items()
        if one.wanted < one.asked
    }


def figure(scale: Scale, devices: Devices) -> Figure:
    """How many devices have a worker, of those that shall have one."""
    wanted, actual = sum(one.wanted for one in scale.classes.values()), sum(devices.actual.values())
    note = "no capacity" if alarms(scale) else ""
    return Figure("Devices wanted", "ok" if actual >= wanted else "late", f"{actual}/{wanted}", note, PAGE)
