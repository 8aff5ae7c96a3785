"""One file per repository: ``<name>.json``, what the store of that repository is opened with.

A file is one JSON object with the keys below, which are obstore's own. What it does not say is the machine's own:
its environment (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``) and its identity. No value is put into an error or a log.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from signalbox.program.errors import Misconfigured
from signalbox.wire.names import MODEL_NAME

MOST_BYTES: Final = 64 * 1024
CLIENT_KEYS: Final = frozenset(
    {"allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate", "proxy_excludes"}
    | {"root_certificate"}
)
"""Of every store: how it is connected to."""
KEYS: Final = {
    "s3": frozenset(
        {"access_key_id", "secret_access_key", "session_token", "region", "endpoint", "skip_signature"}
        | {"virtual_hosted_style_request", "request_payer", "s3_express", "imdsv1_fallback", "metadata_endpoint"}
        | {"role_arn", "role_session_name", "sts_endpoint", "web_identity_token_file"}
        | {"container_credentials_relative_uri", "server_side_encryption", "sse_customer_key_base64"}
    ),
    "gs": frozenset(
        {"service_account", "service_account_key", "application_credentials", "bearer_token", "base_url"}
        | {"skip_signature"}
    ),
    "az": frozenset(
        {"account_name", "account_key", "sas_key", "token", "endpoint", "skip_signature", "use_emulator"}
        | {"client_id", "client_secret", "tenant_id", "authority_host", "federated_token_file"}
        | {"msi_endpoint", "object_id", "msi_resource_id", "encryption_key"}
    ),
}
"""Of the stores of each scheme: who asks, and whom."""
_ENDPOINTS: Final = frozenset({"endpoint", "base_url"})
_PLAIN: Final = {
    "s3": ("AWS_ALLOW_HTTP", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_ALLOW_HTTP",),
    "az": ("AZURE_ALLOW_HTTP", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_Values = dict[str, str | bool]


def inherited(scheme: str, environment: Mapping[str, str] = os.environ) -> _Values:
    """How the machine's environment says a store is connected to: without TLS where it says so, or names an http URL.

    obstore takes that from the environment only where it is given no options of its own.
    """
    said = (environment.get(name, "").lower() for name in _PLAIN[scheme])
    return {"allow_http": True} if any(one == "true" or one.startswith("http://") for one in said) else {}


class Credentials(msgspec.Struct, frozen=True):
    """store: obstore's configuration of one kind of store. client: that of its HTTP client."""

    store: _Values = {}
    client: _Values = {}

    def __repr__(self) -> str:
        return f"Credentials({', '.join(sorted([*self.store, *self.client]))})"


class CredentialsFile:
    """The file of one repository, which may be exchanged while the program runs.

    folder: ``None`` = there are no files. Raises :class:`Misconfigured` where ``name`` cannot be a file's.
    """

    def __init__(self, folder: Path | None, name: str, scheme: str) -> None:
        if not MODEL_NAME.match(name):
            raise Misconfigured(f"A repository cannot be called {name!r}.")
        self._path = folder / f"{name}.json" if folder else None
        self._name = name
        self._scheme = scheme

    def stamp(self) -> tuple[int, int, int]:
        """What changes when the file does; zeros where there is none."""
        try:
            found = self._path.stat() if self._path else None
        except OSError:
            found = None
        return (found.st_ino, found.st_size, found.st_mtime_ns) if found else (0, 0, 0)

    def read(self) -> Credentials:
        """What stands in it, empty where there is none. Raises :class:`Misconfigured`, which shows no value."""
        if self._path is None:
            return Credentials()
        try:
            with self._path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return Credentials()
        except OSError as error:
            raise self._refusal(f"cannot be read: {error.strerror}") from error
        if len(data) > MOST_BYTES:
            raise self._refusal(f"has more than {MOST_BYTES} bytes")
        try:
            values = msgspec.json.decode(data, type=_Values)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._refusal("is not one JSON object of texts, true and false") from None
        return self._checked(values)

    def _checked(self, values: _Values) -> Credentials:
        known = KEYS[self._scheme]
        if unknown := sorted(values.keys() - known - CLIENT_KEYS):
            shown = ", ".join(key[:50] if key.isprintable() else ascii(key)[:50] for key in unknown[:5])
            raise self._refusal(f"has keys that a store of {self._scheme}:// does not take: {shown}")
        for key in _ENDPOINTS & values.keys():
            if not _is_url(str(values[key])):
                raise self._refusal(f"has no URL as {key}: write https://host, or https://host:port")
            if str(values[key]).startswith("http://") and values.get("allow_http") not in {True, "true"}:
                raise self._refusal(f'has {key} without TLS. Use https://, or allow it: "allow_http": true')
        return Credentials(
            {key: value for key, value in values.items() if key in known},
            {key: value for key, value in values.items() if key in CLIENT_KEYS},
        )

    def _refusal(self, what: str) -> Misconfigured:
        return Misconfigured(f"The credentials file of repository {self._name} {what}.", repository=self._name)


def _is_url(text: str) -> bool:
    try:
        found = urlsplit(text)
        return found.scheme in {"http", "https"} and bool(found.hostname) and found.port != 0
    except ValueError:
        return False
