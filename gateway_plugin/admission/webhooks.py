"""The URL that a job names for its end: judged by its text here, and by its addresses when it is called."""

from collections.abc import Mapping
from typing import Any, Final

from gateway_plugin.codec.settings import CodecSettings
from signalbox.program import egress
from signalbox.program.errors import Forbidden, InvalidRequest
from signalbox.wire.keydocs import ApiKey

FIELD: Final = "webhook"
_LONGEST: Final = 1024
"""It is in every record of the job."""


class JobWebhooks:
    """Reads the field ``webhook`` of submissions."""

    def __init__(self, settings: CodecSettings) -> None:
        self._allow_plain = settings.webhook_plain
        self._allowed = egress.networks(settings.webhook_networks)

    def read(self, key: ApiKey, fields: Mapping[str, Any]) -> str:
        """The URL, empty where there is none.

        Raises :class:`InvalidRequest` for one that may not be called, and :class:`Forbidden` for a host that is not
        among those of the key's account.
        """
        url = fields.get(FIELD)
        if url is None:
            return ""
        if type(url) is not str or len(url) > _LONGEST:
            raise InvalidRequest(f'"{FIELD}" must be a URL of at most {_LONGEST} characters.', field=FIELD)
        try:
            egress.judge(url, allow_plain=self._allow_plain, allowed=self._allowed)
        except InvalidRequest as error:
            raise InvalidRequest(f'"{FIELD}": {error.public_message}', field=FIELD) from error
        if egress.host_of(url) not in key.webhook_hosts:
            hosts = ", ".join(key.webhook_hosts) or "none"
            raise Forbidden(
                f'"{FIELD}": its host is not among those that your account\'s jobs may name ({hosts}). An operator may '
                "add it to the account.",
                field=FIELD,
            )
        return url
