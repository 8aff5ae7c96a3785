"""What the process that asks NVML makes of versions."""

from types import SimpleNamespace
from typing import Any

import pytest

from workers.device import nvml


class Refused(Exception):
    """NVML's own error."""


def _driver(cuda: Any) -> Any:
    def told() -> int:
        if isinstance(cuda, Exception):
            raise cuda
        return int(cuda)

    return SimpleNamespace(
        NVMLError=Refused, nvmlSystemGetCudaDriverVersion_v2=told, nvmlSystemGetDriverVersion=lambda: "580.65.06"
    )


@pytest.mark.parametrize(("number", "version"), [(13000, "13.0"), (12080, "12.8"), (11040, "11.4")])
def test_the_versions_of_driver_and_cuda_are_as_nvidia_writes_them(number: int, version: str) -> None:
    assert nvml._software(_driver(number)) == {"driver": "580.65.06", "cuda": version}


def test_a_driver_that_does_not_say_costs_nothing_else() -> None:
    assert nvml._software(_driver(Refused())) == {}
