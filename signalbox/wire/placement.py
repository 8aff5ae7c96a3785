"""Places models on devices: rendezvous hashing over the devices seen in presence. Pure: every program gets the same.

Devices, not workers, are hashed: two workers that share a GPU stand in for one another. Adding or losing a device moves
only the models that gain or lose their place on it. (Thaler and Ravishankar, 1998.)
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

from signalbox.wire.modeldocs import Model
from signalbox.wire.workerdocs import Worker


def devices_of(workers: Iterable[Worker]) -> dict[str, str]:
    """Device id -> host of every device that a worker stands at which neither drains nor leaves.

    Those whose workers leave count while there is no other.
    """
    able = [w for w in workers if w.state != "draining"]
    return {w.device.id: w.host for w in ([w for w in able if not w.is_leaving] or able)}


def homes(model: str, version: int, devices: Mapping[str, str], replicas: int) -> tuple[str, ...]:
    """Ids of the devices that ``model`` is resident on, best first; at most ``replicas``, fewer if there are fewer.

    devices: device id -> host. Hosts are spread over first: no host gets a second replica while another has none.
    """
    ranked = sorted(devices, key=lambda device: (_weight(model, version, device), device), reverse=True)
    chosen: list[str] = []
    used: dict[str, int] = {}
    while ranked and len(chosen) < replicas:
        best = min(ranked, key=lambda device: used.get(devices[device], 0))
        ranked.remove(best)
        chosen.append(best)
        used[devices[best]] = used.get(devices[best], 0) + 1
    return tuple(chosen)


def homes_of(model: Model, workers: Iterable[Worker]) -> tuple[str, ...]:
    """Ids of the devices that a model is placed on, given presence; the same in gateways, workers and console.

    All versions of a model live together: a new one is loaded and warmed up beside the old one, and changing the
    default version moves nothing. A device counts where a worker that is not draining may serve the model.
    """
    able = (worker for worker in workers if not worker.serves or model.name in worker.serves)
    return homes(model.name, 0, devices_of(able), model.replicas)


def kept_models(worker: Worker, others: Iterable[Worker], find: Callable[[str, int], Model | None]) -> set[str]:
    """Models that a worker that leaves has to serve until they are in memory at a device that they are placed on.

    others: presence of all but it. find: the document of a model of which requests get that version. What is placed
    nowhere any more nobody waits for.
    """
    present = [
        other
        for other in others
        if other.device.id != worker.device.id and other.state != "draining" and not other.is_leaving
    ]
    ready = {
        (other.device.id, one.model, one.version)
        for other in present
        if other.token
        for one in other.models
        if one.state == "ready"
    }
    kept: set[str] = set()
    for one in worker.models:
        model = find(one.model, one.version) if one.state in {"ready", "spare"} and worker.token else None
        homes_now = homes_of(model, present) if model is not None and model.is_enabled else ()
        if homes_now and not any((home, one.model, one.version) in ready for home in homes_now):
            kept.add(one.model)
    return kept


def _weight(model: str, version: int, device: str) -> bytes:
    return blake2b(f"{model}\0{version}\0{device}".encode(), digest_size=8).digest()
