"""``signalbox.client`` through each front, with the packages of a base install alone."""

import numpy as np
import pytest

from tests.conformance import clientruns
from tests.conformance.clientruns import Report, client
from tests.conformance.clients import samples
from tests.conformance.clients.steps import tensor

pytestmark = pytest.mark.proof
KINDS = clientruns.KINDS
plain = client("signalbox", heading="signalbox.client")
with_asyncio = client("signalbox_async", "signalbox", "signalbox.client with asyncio")


def test_the_documentation_s_programs_print_what_it_says(signalbox: Report, signalbox_async: Report) -> None:
    assert signalbox["documented"] == clientruns.printed("signalbox.client")
    assert signalbox_async["documented"] == clientruns.printed("signalbox.client with asyncio")


def test_every_dtype_keeps_every_bit(signalbox: Report) -> None:
    given = samples.mirrored()
    wanted = {name: tensor(value) for name, value in given.items() if name != "bfloat16"}
    assert signalbox["predict_every_dtype"] == wanted


def test_arrays_are_submitted_and_read_as_bytes(signalbox: Report) -> None:
    assert signalbox["submit_six_megabytes"] == tensor(samples.large() / 2 + 2)
    loud, size = samples.strings([b"QUIET", b"\xff\0", b""]), np.array([5, 2, 0], np.int32)
    assert signalbox["submit_strings"] == {"loud": tensor(loud), "size": tensor(size)}


def test_outputs_versions_and_labels_are_chosen(signalbox: Report) -> None:
    assert signalbox["predict_some_outputs"] == ["y"]
    assert signalbox["rows_as_json"] == {"predictions": [2.5, 3.0, 4.5]}


def test_a_job_is_waited_for(signalbox: Report) -> None:
    assert signalbox["a_job"] == ["succeeded", "half", "lo", True]


def test_refusals_are_errors_of_their_codes(signalbox: Report) -> None:
    assert signalbox["refusals"] == {
        "an_unknown_model": "NotFound",
        "another_dtype": "InvalidInput",
        "a_wrong_key": "Unauthorized",
        "an_unknown_job": "NoLongerKept",
    }


def test_many_are_predicted_a_few_at_a_time(signalbox_async: Report) -> None:
    assert signalbox_async["predict_many"] == [number / 2 + 2 for number in range(40)]
