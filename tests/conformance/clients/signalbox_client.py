"""Our own client for plain code, in an environment that has what a base install brings and nothing else."""

from collections.abc import Callable
from typing import Any

import numpy as np

from signalbox.client import Client, errors
from tests.conformance.clients import samples
from tests.conformance.clients.steps import WRONG_KEY, Target, take, tensor

ONE = np.array([1.0, 2.0, 5.0], np.float32)


def _client(target: Target) -> Client:
    return Client(target.url, target.key)


def predict_every_dtype(target: Target) -> Any:
    """Each goes as bytes and comes back."""
    with _client(target) as client:
        given = samples.mirrored().items()
        return {name: tensor(client.predict(f"mirror_{name}", {"x": value})["y"]) for name, value in given}


def submit_six_megabytes(target: Target) -> Any:
    with _client(target) as client:
        return tensor(client.result(client.submit("half", {"x": samples.large()}))["y"])


def submit_strings(target: Target) -> Any:
    with _client(target) as client:
        job = client.submit("shout", {"text": samples.strings([b"quiet", b"\xff\0", b""])})
        return {name: tensor(value) for name, value in client.result(job).items()}


def predict_some_outputs(target: Target) -> Any:
    with _client(target) as client:
        return sorted(client.predict("half", {"x": ONE}, outputs=["y"], version=1))


def rows_as_json(target: Target) -> Any:
    with _client(target) as client:
        return client.predict("half", instances=[1.0, 2.0, 5.0], label="stable")


def a_job(target: Target) -> Any:
    with _client(target) as client:
        job = client.wait(client.submit("half", {"x": ONE}, priority="lo"))
        return [job.state, job.model, job.priority, job.has_ended]


def refusals(target: Target) -> Any:
    """The errors' classes, by what was wrong."""
    found = {}
    with _client(target) as client, Client(target.url, WRONG_KEY) as stranger:
        calls: dict[str, Callable[[], Any]] = {
            "an_unknown_model": lambda: client.predict("nobody", {"x": ONE}),
            "another_dtype": lambda: client.predict("half", {"x": ONE.astype(np.float64)}),
            "a_wrong_key": stranger.models,
            "an_unknown_job": lambda: client.job("01890000-0000-7000-8000-000000000000"),
        }
        for name, call in calls.items():
            try:
                found[name] = str(call())
            except errors.SignalboxError as error:
                found[name] = type(error).__name__
    return found


if __name__ == "__main__":
    take(__name__)
