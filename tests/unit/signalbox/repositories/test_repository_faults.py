"""What the errors of object stores mean, and that their texts, which may have a signed URL, go no further."""

import pytest
from obstore.exceptions import BaseError, GenericError, PermissionDeniedError, PreconditionError, UnauthenticatedError

from signalbox.program.errors import Conflict, Misconfigured, NotFound, SignalboxError, Unavailable
from signalbox.repositories.faults import translated

ASKED = "Error performing GET http://store/zoo/m/1?sig=hunter2 in 2ms"
REFUSED = f"{ASKED} - Server returned non-2xx status code: "


@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        (PreconditionError(f"{REFUSED}412"), Conflict, "no longer the one"),
        (
            PermissionDeniedError(f"{REFUSED}403 Forbidden: <Code>AccessDenied</Code>"),
            Misconfigured,
            "403 AccessDenied",
        ),
        (UnauthenticatedError(f"{REFUSED}401"), Misconfigured, "refuses its credentials (401)"),
        (GenericError(f"{REFUSED}403 <Code>InvalidAccessKeyId</Code>"), Misconfigured, "403 InvalidAccessKeyId"),
        (FileNotFoundError(f"{REFUSED}404 <Code>NoSuchKey</Code>"), NotFound, "m/1 is not in repository zoo"),
        (FileNotFoundError(f"{REFUSED}404 <Code>NoSuchBucket</Code>"), Misconfigured, "bucket of repository zoo"),
        (GenericError("Error performing PUT http://169.254.169.254/latest/api/token"), Misconfigured, "zoo.json"),
        (GenericError(f"{REFUSED}416"), Conflict, "shorter"),
        (GenericError(f"{ASKED} - Received redirect without LOCATION"), Misconfigured, "set region"),
        (GenericError(f"{REFUSED}400 <Code>InvalidBucketName</Code>"), Misconfigured, "400 InvalidBucketName"),
        (GenericError(f"{REFUSED}429"), Unavailable, "(429)"),
        (GenericError(f"{REFUSED}503 <Code>SlowDown</Code>"), Unavailable, "(503 SlowDown)"),
        (GenericError(f"{ASKED}, after 3 retries - HTTP error: error sending request"), Unavailable, "overloaded."),
        (GenericError(f"{ASKED} - HTTP error: builder error"), Misconfigured, "allow_http"),
        (BaseError("hunter2"), Unavailable, "away"),
        (TimeoutError("hunter2"), Unavailable, "in time"),
        (ValueError("Could not parse path: hunter2"), NotFound, "m/1 is not"),
    ],
)
def test_an_error_of_a_store_is_one_of_ours(error: Exception, expected: type[SignalboxError], says: str) -> None:
    with pytest.raises(expected) as raised, translated("zoo", "m/1"):
        raise error
    assert says in raised.value.public_message
    assert "hunter2" not in repr(raised.value) + repr(raised.value.__cause__)
    assert raised.value.__suppress_context__


def test_a_listing_that_is_not_found_has_no_bucket() -> None:
    with pytest.raises(Misconfigured, match="bucket of repository zoo does not exist"), translated("zoo"):
        raise GenericError(f"{REFUSED}404 Not Found")
