"""The gateway's calls, whatever the transport: their methods, and the part of an answer that the gateway reads."""

from typing import Final

from gateway_plugin.proto.coprocess_pb2 import EventReply, Object

SERVICE: Final = "coprocess.Dispatcher"
DISPATCH: Final = f"/{SERVICE}/Dispatch"
EVENT: Final = f"/{SERVICE}/DispatchEvent"
EVENT_REPLY: Final = EventReply().SerializeToString()

BUSY: Final = "too many calls in flight"
MALFORMED: Final = "not a message of this method"


def reply(obj: Object) -> bytes:
    """The part of an object that the gateway reads (docs/tyk.md): it keeps its own copy of the rest."""
    request = obj.request
    if request.return_overrides.response_code > 0:
        given = Object()
        given.request.url = request.url
        given.request.method = request.method
        given.request.return_overrides.CopyFrom(request.return_overrides)
        return given.SerializeToString()
    request.headers.clear()
    obj.spec.clear()
    return obj.SerializeToString()
