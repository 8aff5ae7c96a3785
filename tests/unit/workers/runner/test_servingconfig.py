"""TensorFlow Serving's text files are read field by field; a broken one is refused with its name and line."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from signalbox.program.errors import InvalidRequest
from signalbox.wire.servingconfig import BATCHING, CONFIG, MOST_FILE_BYTES, ServingBatching, ServingModel
from workers.runner.servingconfig import inspect_serving

WHOLE = b"""
# A comment.
model_config_list: {
  config: {
    name: "first", base_path: "/models/first", model_platform: "tensorflow",
    model_version_policy: { latest: { num_versions: 3 } }
    of_a_later_release: { a: [ 1, 2 ] }
  },
  config { name: 'second' base_path: 's3://b/second' model_type: OTHER model_version_policy { all { } } }
  config { name: 'third' version_labels { key: 'stable' value: 43 } model_version_policy { specific { versions: 43 } } }
}
"""


def test_names_paths_policies_and_labels_are_read(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_bytes(WHOLE)
    found = inspect_serving(tmp_path)
    first, second, third = found.models
    assert first == ServingModel(name="first", base_path="/models/first", fields=first.fields, latest=3)
    assert second == ServingModel(
        name="second", base_path="s3://b/second", fields=second.fields, kind="other", is_all=True
    )
    assert third == ServingModel(name="third", fields=third.fields, labels={"stable": 43}, specific=(43,))
    assert third.fields == ("name", "model_version_policy", "version_labels")
    assert found.batching is None


def test_batching_parameters_are_read_and_the_others_are_named(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_bytes(WHOLE)
    (tmp_path / BATCHING).write_text(
        "max_batch_size { value: 128 } batch_timeout_micros { value: 0 } allowed_batch_sizes : 2 "
        "allowed_batch_sizes: 128 enable_large_batch_splitting { value: false } pad_variable_length_inputs: true"
    )
    batching = inspect_serving(tmp_path).batching
    assert batching == ServingBatching(
        fields=(
            "max_batch_size",
            "batch_timeout_micros",
            "allowed_batch_sizes",
            "pad_variable_length_inputs",
            "enable_large_batch_splitting",
        ),
        max_batch_size=128,
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"model_config_list {\n config {\n name: }", "models.config: Line 3: "),
        (b"\xff", "models.config: It is no UTF-8."),
        (b"a {" * 10_000, "models.config: "),
        (b"x" * (MOST_FILE_BYTES + 1), f"models.config: It has more than {MOST_FILE_BYTES} bytes."),
        (b"", "models.config: has a model_config_list of 1 to 1000 models; this has 0."),
        (b"model_config_list {" + b"config {}" * 1001 + b"}", "this has 1001."),
    ],
)
def test_what_is_no_configuration_is_refused_with_the_reason(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / CONFIG).write_bytes(data)
    with pytest.raises(InvalidRequest) as refused:
        inspect_serving(tmp_path)
    assert why in refused.value.public_message
    assert len(refused.value.public_message) < 400


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_whatever_the_bytes_are_they_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / CONFIG).write_bytes(b"model_config_list { config { " + data)
    with suppress(InvalidRequest):
        inspect_serving(tmp_path)
