"""Agents of hosts that are here, as they tell themselves.

Pages know a host by the id of its lock directory, as its workers' presence does; its agent has a name of its own.
"""

from console.feed.running import running
from console.fleet import workers
from console.fleet.models import DesiredState
from signalbox.wire.scaling import Host


def present() -> dict[str, Host]:
    """Agents by the id of their host; empty while NATS is away."""
    feed = running.feed
    if feed is None or feed.is_blind:
        return {}
    return {host.host.partition("/")[0]: host for host in feed.scaling.hosts()}


def name_of(host: str) -> str:
    """The name of the agent of a host; what is given where none is here, which may be such a name."""
    agent = present().get(host)
    return agent.id if agent is not None else host


def must_exist(name: str) -> None:
    """Returns if the agent is here, or was asked to drain once.

    Raises :class:`NotFound`, or :class:`Unavailable` where that cannot be told without NATS.
    """
    is_here = any(agent.id == name for agent in present().values())
    if not is_here and desired_of(name) is None:
        raise workers.unknown("host with an agent", name)


def desired_of(name: str) -> DesiredState | None:
    """What operators asked of an agent last; None where nobody did."""
    return DesiredState.objects.filter(kind=DesiredState.HOST, name=name).first()
