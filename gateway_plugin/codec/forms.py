"""What kind of request a body is: our own job, TensorFlow Serving's predict, classify or regress, or an inference of
the Open Inference Protocol.

A body is read in two steps, since only its fields, or the path, say which model it is for: :func:`read` parses it,
:func:`decode` makes it the inputs of a version. As in TensorFlow Serving the first step finds what is wrong whatever
the model is.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from gateway_plugin.codec import inputs
from gateway_plugin.codec.inputs import SERVING_WORDS, Decoded, Plan, UnknownSignature
from gateway_plugin.codec.oip import inputs as oipinputs
from gateway_plugin.codec.oip import request as oiprequest
from gateway_plugin.codec.oip.request import InferBody
from gateway_plugin.codec.serving import examples, mismatch
from gateway_plugin.codec.serving.examples import Examples
from gateway_plugin.codec.serving.rapidjson import parse_as_served, shown
from signalbox.front.jsonbody import Body, Bounds, parse
from signalbox.program.errors import InvalidRequest, TooLarge


class Form(StrEnum):
    """The kinds of bodies. ``jobs``: many of ``job``, see :mod:`gateway_plugin.codec.many`."""

    JOB = "job"
    JOBS = "jobs"
    PREDICT = "predict"
    CLASSIFY = examples.CLASSIFY
    REGRESS = examples.REGRESS
    INFER = "infer"


_NO_BODY: Final = Body(None, is_plain=False)


class ReadBody(NamedTuple):
    """A body that was read, and its examples if it has any. An inference request is no ``body`` but its own."""

    form: Form
    body: Body
    examples: Examples | None = None
    inference: InferBody | None = None

    @property
    def fields(self) -> Mapping[str, Any]:
        """The whole object; of an inference request what stands beside the inputs."""
        if self.inference is not None:
            return self.inference.fields
        fields: dict[str, Any] = self.body.doc
        return fields


def read(form: Form, body: bytes, bounds: Bounds, header_bytes: int | None = None) -> ReadBody:
    """A body that was parsed. header_bytes: see :func:`gateway_plugin.codec.oip.request.read`.

    Raises as :func:`signalbox.front.jsonbody.parse`, and :class:`InvalidRequest` for what no model can take.
    """
    if form is Form.INFER:
        return ReadBody(form, _NO_BODY, inference=oiprequest.read(body, bounds, header_bytes))
    if form in {Form.JOB, Form.JOBS}:
        return ReadBody(form, parse(body, bounds))
    parsed = parse_as_served(body, bounds)
    if type(parsed.doc.get("signature_name", "")) is not str:
        raise InvalidRequest(
            f"JSON Value: {shown(parsed.doc)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return ReadBody(form, parsed, None if form is Form.PREDICT else examples.read(parsed.doc))


def decode(read_body: ReadBody, available: Mapping[str, Plan], max_tensor_bytes: int) -> Decoded:
    """The inputs for one of the signatures that are available.

    Raises :class:`InvalidRequest` and :class:`TooLarge`; for TensorFlow Serving's requests in its
    words, followed by ours.
    """
    form, body, found, inference = read_body
    if inference is not None:
        return oipinputs.decode(inference, available, max_tensor_bytes)
    if found is not None:
        return examples.decode(body.doc, found, available, form.value, max_tensor_bytes)
    if form is Form.JOB:
        return inputs.decode(body, available, max_tensor_bytes)
    try:
        return inputs.decode(body, available, max_tensor_bytes, SERVING_WORDS)
    except (TooLarge, UnknownSignature):
        raise
    except InvalidRequest as error:
        if theirs := _their_words(body.doc, inputs.choose(body.doc, available)):
            put_before(error, theirs)
        raise


def _their_words(doc: Mapping[str, Any], plan: Plan) -> str:
    """What TensorFlow Serving says of a predict request that was refused; empty where it would have taken it."""
    if not plan.inputs:
        return f"Failed to get input map for signature: {doc.get('signature_name') or 'DEFAULT'}"
    return mismatch.of_request(doc, {one.name: one.dtype for one in plan.inputs})


def put_before(error: InvalidRequest, theirs: str) -> None:
    """Put TensorFlow Serving's text before ours."""
    error.public_message = f"{theirs}. {error.public_message}"
    error.args = (error.public_message,)
