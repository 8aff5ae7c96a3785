"""Places models on devices: rendezvous hashing over the devices seen in presence. Pure: every program gets the same.

Devices, not workers, are hashed: two workers that share a GPU stand in for one another. Adding or losing a device moves
only the models that gain or lose their place on it. (Thaler and Ravishankar, 1998.)
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from signalbox.wire.messages import Model, Worker


def devices_of(workers: Iterable[Worker]) -> dict[str, str]:
    """Device id -> host of every device a worker that is not draining stands at."""
    return {w.device.id: w.host for w in workers if w.state != "draining"}


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


def _weight(model: str, version: int, device: str) -> bytes:
    return blake2b(f"{model}\0{version}\0{device}".encode(), digest_size=8).digest()
