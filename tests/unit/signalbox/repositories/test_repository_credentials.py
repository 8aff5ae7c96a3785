"""Credentials files: what they may say, and that no refusal shows a value."""

import json
from pathlib import Path

import pytest

from signalbox.program.errors import InvalidRequest, Misconfigured
from signalbox.repositories.credentials import CredentialsFile
from signalbox.repositories.location import Location
from signalbox.repositories.store import ObjectStore

KEYS = {"access_key_id": "me", "secret_access_key": "hunter2"}


def test_a_file_is_divided_into_what_store_and_client_take(tmp_path: Path) -> None:
    (tmp_path / "zoo.json").write_text(json.dumps({**KEYS, "endpoint": "http://s3.lan", "allow_http": True}))
    found = CredentialsFile(tmp_path, "zoo", "s3").read()
    assert found.store == {**KEYS, "endpoint": "http://s3.lan"}
    assert found.client == {"allow_http": True}
    assert repr(found) == "Credentials(access_key_id, allow_http, endpoint, secret_access_key)"


@pytest.mark.parametrize("folder", ["", "files"])
def test_without_a_file_the_machine_s_own_identity_counts(tmp_path: Path, folder: str) -> None:
    file = CredentialsFile(tmp_path / folder if folder else None, "zoo", "s3")
    assert file.read().store == {}
    assert file.stamp() == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (json.dumps({**KEYS, "bucket": "hunter2"}), "does not take: bucket"),
        (json.dumps({**KEYS, "account_key": "hunter2", "sas": "hunter2"}), "does not take: account_key, sas"),
        (json.dumps({**KEYS, "endpoint": "http://hunter2"}), '"allow_http": true'),
        *(
            (json.dumps({**KEYS, "endpoint": url}), "no URL")
            for url in ("hunter2:9000", "https://", "https://hunter2:99999")
        ),
        (json.dumps({**KEYS, "region": 2}), "one JSON object"),
        (json.dumps([KEYS]), "one JSON object"),
        ('{"secret_access_key": "hunter2', "one JSON object"),
        (json.dumps({**KEYS, "region": "hunter2" * 10_000}), "more than 65536 bytes"),
        (json.dumps({**KEYS, "skip_signature": "hunter2"}), "a value that does not fit"),
    ],
)
def test_what_a_file_may_not_say_is_refused_by_the_key_and_never_by_the_value(
    tmp_path: Path, text: str, match: str
) -> None:
    (tmp_path / "zoo.json").write_text(text)
    with pytest.raises(Misconfigured, match=match) as refused:
        ObjectStore.open(Location.parse("s3://bucket"), tmp_path, "zoo")
    error: BaseException | None = refused.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__


def test_a_folder_of_this_machine_is_no_object_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        ObjectStore.open(Location.parse("file:///models"), tmp_path, "zoo")


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured):
        CredentialsFile(tmp_path, "../zoo", "s3")
