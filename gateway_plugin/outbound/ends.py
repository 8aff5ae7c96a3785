"""Makes the message of a job's end from its record and what the record holds."""

from typing import Final

import msgspec

from gateway_plugin.codec.inputs import ROW
from gateway_plugin.codec.outputs import MOST_SHRUNK, least_bytes, render
from signalbox.bus.client import Bus
from signalbox.jobs import payloads
from signalbox.program.errors import InvalidRequest
from signalbox.wire import tensors
from signalbox.wire.messages import Record, State
from signalbox.wire.names import Stream
from signalbox.wire.outbound import End, Outputs

_COLUMNAR: Final = "columnar"
_PART: Final = "end"
"""Of a job's payloads: its outputs, stored for those who read its end."""
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def is_inline(record: Record) -> bool:
    """Whether its outputs lie in its record's body."""
    return record.state is State.SUCCEEDED and record.ref is None


async def end_of(bus: Bus, record: Record, body: bytes, inline_bytes: int) -> End:
    """The end of a job. body: of its record. inline_bytes: the largest JSON of outputs that is in the message.

    Larger outputs that lie in the record are stored as a payload, because nobody else may read records. Raises as
    :meth:`Bus.write`.
    """
    prediction: object = None
    ref = record.ref
    if is_inline(record):
        prediction = _prediction(body, record.style, inline_bytes)
        if prediction is None:
            ref = await payloads.store(bus, record.account_id, record.id, _PART, body)
    return End(
        request_id=record.id,
        prediction=prediction,
        outputs=Outputs(stream=Stream.PAYLOADS.value, ref=ref) if ref is not None else None,
        state=record.state,
        error=record.error,
        account=record.account_id,
        model=record.model,
        version=record.version,
        signature=record.signature,
        created_at=record.created_at,
        finished_at=record.finished_at or record.created_at,
        attempt=record.attempt,
        tags=record.tags,
        webhook=record.webhook,
        trace=record.trace,
    )


def _prediction(frame: bytes, style: str, most: int) -> msgspec.Raw | None:
    """JSON of the outputs, as the API shows them; None where it is too long, or rows are impossible."""
    if len(frame) > MOST_SHRUNK * most:
        return None
    try:
        outputs = tensors.decode(frame)
        if least_bytes(outputs) > most:
            return None
        data = render(outputs, ROW if style == ROW else _COLUMNAR, is_strict=True)
    except (InvalidRequest, msgspec.MsgspecError):  # whoever reads the frame sees what the model gave out
        return None
    (value,) = _fields(data).values()
    return value if len(value) <= most else None
