"""URLs of repositories: what is taken, what is refused, and what lies within what."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.program.errors import InvalidRequest
from signalbox.repositories.location import SCHEMES, Location, fault

NAMES = st.text("abcAZ09 ._-=~é/", min_size=1, max_size=8).filter(lambda name: not fault(name))
LOCATIONS = st.builds(
    lambda scheme, names: Location(scheme, "" if scheme == "file" else "bucket-1", "/".join(names)),
    st.sampled_from(SCHEMES),
    st.lists(NAMES, max_size=4),
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///models", Location("file", "", "models")),
        ("file:///", Location("file")),
        ("s3://bucket", Location("s3", "bucket")),
        ("s3://bucket/", Location("s3", "bucket")),
        ("gs://my_bucket.example/a/b/", Location("gs", "my_bucket.example", "a/b")),
        ("az://container/a b", Location("az", "container", "a b")),
    ],
)
def test_a_url_is_parsed(url: str, expected: Location) -> None:
    assert Location.parse(url) == expected


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("", "begins with file://"),
        ("/models", "begins with file://"),
        ("http://host/models", "begins with file://"),
        ("S3://bucket", "begins with file://"),
        ("s3:/bucket", "begins with file://"),
        ("s3://", "bucket's name"),
        ("s3://Bucket/x", "bucket's name"),
        ("s3://user:secret@bucket/x", "credentials file"),
        ("s3://bucket:9000/x", "credentials file"),
        ("s3://bucket/x?versionId=1", "a query"),
        ("s3://bucket/x#y", "a fragment"),
        ("s3://bucket/x%2e%2e/y", "percent-encoding"),
        ("s3://bucket/x\\y", "a backslash"),
        ("s3://bucket/x/../y", "'..'"),
        ("s3://bucket/./y", "'..'"),
        ("s3://bucket//y", "an empty part"),
        ("s3://bucket/x\ny", "cannot be printed"),
        ("s3://bucket/x\x00", "cannot be printed"),
        ("s3://bucket/x\udcff", "cannot be printed"),
        ("s3://bucket/ x", "a space"),
        ("file://host/models", "three slashes"),
        ("s3://bucket/" + "x" * 1000, "at most 1000"),
    ],
)
def test_what_is_no_url_of_a_repository_is_refused_with_the_reason(url: str, match: str) -> None:
    with pytest.raises(InvalidRequest, match=match) as refused:
        Location.parse(url)
    assert "secret" not in refused.value.public_message


@given(
    st.text(max_size=40) | st.sampled_from(SCHEMES).flatmap(lambda s: st.text(max_size=40).map(f"{s}://b00{{}}".format))
)
def test_a_text_is_a_url_that_is_written_the_same_again_or_refused(text: str) -> None:
    try:
        found = Location.parse(text)
    except InvalidRequest:
        return
    assert Location.parse(found.url) == found
    assert found.url.rstrip("/") == text.rstrip("/")


@given(LOCATIONS, st.lists(NAMES, min_size=1, max_size=3))
def test_what_lies_below_is_within_and_not_the_other_way(location: Location, names: list[str]) -> None:
    below = location.below(*names)
    assert Location.parse(below.url) == below
    assert below.is_within([location.url])
    assert below.is_within([f"{location.scheme}://"])
    assert not location.is_within([below.url])
    assert location.is_within([location.url])
    assert not Location(location.scheme, location.bucket, below.prefix + "x").is_within([below.url])


@pytest.mark.parametrize(
    ("prefixes", "expected"),
    [
        (["s3://a11/b"], True),
        (["s3://a11"], True),
        (["s3://"], True),
        (["gs://", "s3://a11/"], True),
        ([], False),
        (["s3://a11/b/c/d"], False),
        (["s3://a11/bc"], False),
        (["s3://a11/b/cc"], False),
        (["gs://a11/b"], False),
        (["s3://a1"], False),
        (["file:///"], False),
    ],
)
def test_prefixes_are_compared_folder_by_folder(prefixes: list[str], *, expected: bool) -> None:
    prefixes = [prefix if prefix != "s3://a1" else "s3://a11b" for prefix in prefixes]
    assert Location.parse("s3://a11/b/c").is_within(prefixes) is expected


def test_a_prefix_that_is_no_url_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        Location.parse("s3://bucket").is_within(["bucket"])


def test_parts_that_lead_out_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        Location.parse("s3://bucket/a").below("m", "../../b")


def test_a_folder_of_this_machine_is_local() -> None:
    location = Location.parse("file:///models/zoo")
    assert location.is_local
    assert location.folder == Path("/models/zoo")
    assert not Location.parse("s3://bucket").is_local
