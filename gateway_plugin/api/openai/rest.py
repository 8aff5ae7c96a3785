"""``/v1/files``, ``/v1/uploads`` and ``/v1/batches`` over HTTP, in OpenAI's form."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs

from gateway_plugin.admission.idempotency import HEADER, REPLAYED, require_name
from gateway_plugin.admission.keyring import CANCEL, READ, SUBMIT, require_model, require_scope
from gateway_plugin.api.openai.multipart import Began, Multipart
from gateway_plugin.api.openai.objects import (
    batch_object,
    file_object,
    listed,
    part_object,
    refusal,
    upload_object,
)
from gateway_plugin.jsonresponses import JsonResponse, StreamResponse, json_response
from gateway_plugin.request import Request
from gateway_plugin.service.batches import BATCH_ID, FILE_ID, Batches, endpoint_of
from gateway_plugin.service.files import Files, Upload
from gateway_plugin.service.uploads import MOST_PARTS, OPEN_S, PART_BYTES, UPLOAD_ID, Uploads
from signalbox.front.jsonbody import Bounds, parse
from signalbox.program.errors import Conflict, InvalidRequest, MethodNotAllowed, NotFound, SignalboxError, Unimplemented
from signalbox.wire.keydocs import ApiKey

UPLOAD_BYTES: Final = PART_BYTES + 65_536
"""Largest body that is a file, or a part of one, with what is around it."""
_OURS: Final = re.compile(r"/v1/(?:files|uploads|batches)(?:[/?]|\Z)")
_PATH: Final = re.compile(
    r"/v1/(?P<what>files|uploads|batches)(?:/(?P<id>[^/]+)(?:/(?P<act>content|parts|complete|cancel))?)?\Z"
)
_IDS: Final = {"files": FILE_ID, "uploads": UPLOAD_ID, "batches": BATCH_ID}
_BOUNDS: Final = Bounds(131_072, 2 * MOST_PARTS)
_PURPOSES: Final = ("batch",)
_MOST_LISTED: Final = {"files": 10_000, "batches": 100}
_LISTED: Final = {"files": 10_000, "batches": 20}
_MOST_PAIRS, _LONGEST_NAME, _LONGEST_VALUE = 16, 64, 512
_LONGEST_FIELD: Final = 1024
_LONGEST_NUMBER: Final = 9
_SHOWN: Final = 200

_Act = Callable[[Request, ApiKey, str], Awaitable[JsonResponse | StreamResponse]]


class OpenAiRest:
    """The dialect of files, uploads and batches. kept_s: how long files are kept."""

    limit_bytes = _BOUNDS.body_bytes
    most_bytes = UPLOAD_BYTES

    def __init__(self, files: Files, uploads: Uploads, batches: Batches, *, kept_s: float) -> None:
        self._files = files
        self._uploads = uploads
        self._batches = batches
        self._kept_s = kept_s
        self._acts: dict[tuple[str, bool, str], dict[str, _Act]] = {
            ("files", False, ""): {"GET": self._list_files, "POST": self._upload_whole},
            ("files", True, ""): {"GET": self._file, "DELETE": self._delete},
            ("files", True, "content"): {"GET": self._content},
            ("uploads", False, ""): {"POST": self._begin},
            ("uploads", True, "parts"): {"POST": self._upload_whole},
            ("uploads", True, "complete"): {"POST": self._complete},
            ("uploads", True, "cancel"): {"POST": self._give_up},
            ("batches", False, ""): {"GET": self._list_batches, "POST": self._make},
            ("batches", True, ""): {"GET": self._batch},
            ("batches", True, "cancel"): {"POST": self._cancel},
        }

    def takes(self, head: str) -> bool:
        """Whether a path is of files, uploads or batches."""
        return _OURS.match(head) is not None

    def keyless(self, _request: Request) -> JsonResponse | None:
        """Nothing here is without a key."""
        return None

    def refusal(self, error: SignalboxError, _url: str = "") -> JsonResponse:
        """OpenAI's error."""
        return refusal(error)

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse | StreamResponse:
        """The answer. Raises errors of ours."""
        path = request.url.partition("?")[0]
        found = _PATH.match(path)
        acts = self._acts.get((found["what"], found["id"] is not None, found["act"] or "")) if found else None
        if found is None or acts is None:
            raise NotFound(f"There is nothing at {path[:_SHOWN]}.")
        if request.method not in acts:
            allowed = ", ".join(acts)
            raise MethodNotAllowed(f"{path[:_SHOWN]} takes {allowed}.", allow=allowed)
        given = found["id"] or ""
        if given and _IDS[found["what"]].match(given) is None:
            raise NotFound("There is no such thing, or it is not yours.")
        return await acts[request.method](request, key, given)

    # ------------------------------------------------------------------ files

    def is_upload(self, request: Request) -> bool:
        """Whether a request's body is a file or a part of one, which :meth:`upload` reads as it comes."""
        found = _PATH.match(request.url.partition("?")[0])
        if request.method != "POST" or found is None:
            return False
        return (found["what"], found["id"], found["act"]) == ("files", None, None) or found["act"] == "parts"

    async def upload(self, request: Request, key: ApiKey, body: AsyncGenerator[bytes, None]) -> JsonResponse:
        """The file, or the part, that a body holds. Raises as :meth:`Upload.write`, and :class:`InvalidRequest`."""
        require_scope(key, SUBMIT)
        found = _PATH.match(request.url.partition("?")[0])
        upload_id = found["id"] if found is not None else None
        if upload_id is None:
            return await self._upload_file(request, key, body)
        return await self._upload_part(request, key, upload_id, body)

    async def _upload_file(self, request: Request, key: ApiKey, body: AsyncGenerator[bytes, None]) -> JsonResponse:
        upload = await self._files.upload(key.account_id)
        try:
            fields, filename = await _received(request, body, upload, "file")
            purpose = fields.get("purpose", b"").decode(errors="replace")
            if filename is None or purpose not in _PURPOSES:
                raise InvalidRequest('Send a "file", and a "purpose" that is "batch".', field="purpose")
            made = await upload.finish(filename, purpose)
        except BaseException:
            upload.abandon()
            raise
        return json_response(200, file_object(made, self._kept_s))

    async def _upload_part(
        self, request: Request, key: ApiKey, upload_id: str, body: AsyncGenerator[bytes, None]
    ) -> JsonResponse:
        if UPLOAD_ID.match(upload_id) is None:
            raise NotFound("There is no such upload, or it is not yours.")
        part = await self._uploads.part(key.account_id, upload_id)
        try:
            await _received(request, body, part, "data")
            made = await self._uploads.add(key.account_id, upload_id, part)
        except BaseException:
            part.abandon()
            raise
        return json_response(200, part_object(made, upload_id))

    async def _upload_whole(self, _request: Request, _key: ApiKey, _id: str) -> JsonResponse:
        raise Unimplemented("Have the gateway send this path to the upstream, which takes files (docs/tyk.md).")

    async def _list_files(self, request: Request, key: ApiKey, _id: str) -> JsonResponse:
        require_scope(key, READ)
        query = parse_qs(request.url.partition("?")[2])
        purpose = query.get("purpose", [""])[0]
        found = [one for one in await self._files.list(key.account_id) if purpose in {"", one.purpose}]
        if query.get("order", ["desc"])[0] == "asc":
            found.reverse()
        return _page("files", query, [file_object(one, self._kept_s) for one in found])

    async def _file(self, _request: Request, key: ApiKey, file_id: str) -> JsonResponse:
        require_scope(key, READ)
        return json_response(200, file_object(await self._files.find(key.account_id, file_id), self._kept_s))

    async def _content(self, _request: Request, key: ApiKey, file_id: str) -> StreamResponse:
        require_scope(key, READ)
        found = await self._files.find(key.account_id, file_id)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(found.size),
            "X-Content-Type-Options": "nosniff",
        }
        parts = self._files.read(key.account_id, found)
        return StreamResponse(200, headers, parts, is_paced=True)

    async def _delete(self, _request: Request, key: ApiKey, file_id: str) -> JsonResponse:
        require_scope(key, SUBMIT)
        found = await self._files.find(key.account_id, file_id)
        if not found.is_whole:  # what follows would be a file without its beginning
            raise Conflict("A batch is still writing this file. Cancel the batch, or wait for its end.")
        await self._files.delete(key.account_id, file_id)
        return json_response(200, {"id": file_id, "object": "file", "deleted": True})

    # ------------------------------------------------------------------ files in parts

    async def _begin(self, request: Request, key: ApiKey, _id: str) -> JsonResponse:
        require_scope(key, SUBMIT)
        fields = parse(request.raw_body, _BOUNDS).doc
        filename, purpose = _text(fields, "filename"), _text(fields, "purpose")
        if purpose not in _PURPOSES:
            raise InvalidRequest('The "purpose" must be "batch".', field="purpose")
        if len(filename) > _LONGEST_FIELD:
            raise InvalidRequest(f"A field is longer than {_LONGEST_FIELD} characters.", field="filename")
        size = fields.get("bytes")
        if type(size) is not int:
            raise InvalidRequest('"bytes" must be the size of the file, a whole number.', field="bytes")
        made = await self._uploads.make(key.account_id, filename, purpose, size)
        return json_response(200, upload_object(made, OPEN_S))

    async def _complete(self, request: Request, key: ApiKey, upload_id: str) -> JsonResponse:
        require_scope(key, SUBMIT)
        fields = parse(request.raw_body, _BOUNDS).doc
        part_ids = fields.get("part_ids") if isinstance(fields, dict) else None
        if not isinstance(part_ids, list) or not all(type(one) is str for one in part_ids):
            raise InvalidRequest('The body must be an object with "part_ids", a list of strings.', field="part_ids")
        md5 = "" if fields.get("md5") is None else _text(fields, "md5")
        upload, made = await self._uploads.complete(key.account_id, upload_id, part_ids, md5)
        return json_response(200, upload_object(upload, OPEN_S, file_object(made, self._kept_s)))

    async def _give_up(self, _request: Request, key: ApiKey, upload_id: str) -> JsonResponse:
        require_scope(key, SUBMIT)
        return json_response(200, upload_object(await self._uploads.cancel(key.account_id, upload_id), OPEN_S))

    # ------------------------------------------------------------------ batches

    async def _make(self, request: Request, key: ApiKey, _id: str) -> JsonResponse:
        require_scope(key, SUBMIT)
        fields = parse(request.raw_body, _BOUNDS).doc
        endpoint, input_file = _text(fields, "endpoint"), _text(fields, "input_file_id")
        if FILE_ID.match(input_file) is None:
            raise NotFound("There is no such file, or it is not yours.", field="input_file_id")
        require_model(key, endpoint_of(endpoint).model)
        window = _text(fields, "completion_window")
        metadata = _metadata(fields.get("metadata"))
        if (once := request.headers.get(HEADER)) is not None:
            require_name(once)
        made = await self._batches.make(key, endpoint, input_file, window, metadata, once=once or "")
        return json_response(200, batch_object(made.batch), {REPLAYED: "true"} if made.is_replayed else None)

    async def _list_batches(self, request: Request, key: ApiKey, _id: str) -> JsonResponse:
        require_scope(key, READ)
        query = parse_qs(request.url.partition("?")[2])
        return _page("batches", query, [batch_object(one) for one in await self._batches.list(key.account_id)])

    async def _batch(self, _request: Request, key: ApiKey, batch_id: str) -> JsonResponse:
        require_scope(key, READ)
        return json_response(200, batch_object(await self._batches.find(key.account_id, batch_id)))

    async def _cancel(self, _request: Request, key: ApiKey, batch_id: str) -> JsonResponse:
        require_scope(key, CANCEL)
        return json_response(200, batch_object(await self._batches.cancel(key.account_id, batch_id)))


async def _received(
    request: Request, body: AsyncGenerator[bytes, None], upload: Upload, field: str
) -> tuple[dict[str, bytes], str | None]:
    """Write one field of a multipart body as it comes. Returns the others, and the name of the file, None where none
    came. Raises as :meth:`OpenAiRest.upload`."""
    reader = Multipart(request.headers.get("Content-Type", ""))
    fields: dict[str, bytes] = {}
    name, filename = "", None
    async for part in body:
        for found in reader.feed(part):
            if isinstance(found, Began):
                name = found.name
                if name == field:
                    if filename is not None:
                        raise InvalidRequest("Send one file in a call.", field=field)
                    filename = found.filename or "upload.jsonl"
            elif name == field:
                await upload.write(found)
            else:
                fields[name] = fields.get(name, b"") + found
                if len(fields[name]) > _LONGEST_FIELD:
                    raise InvalidRequest(f"A field is longer than {_LONGEST_FIELD} bytes.", field=name[:60])
    if not reader.is_over:
        raise InvalidRequest("The multipart body has no end.")
    return fields, filename


def _page(what: str, query: dict[str, list[str]], objects: list[dict[str, Any]]) -> JsonResponse:
    """The page that a query asks for. Raises :class:`InvalidRequest`."""
    text = query.get("limit", [str(_LISTED[what])])[0]
    most = _MOST_LISTED[what]
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER or not 0 < int(text) <= most:
        raise InvalidRequest(f'"limit" must be a number from 1 to {most}.', field="limit")
    after = query.get("after", [""])[0]
    if after:
        places = [place for place, one in enumerate(objects) if one["id"] == after]
        objects = objects[places[0] + 1 :] if places else []
    limit = int(text)
    return json_response(200, listed(objects[:limit], has_more=len(objects) > limit))


def _text(fields: Any, name: str) -> str:
    """A field that must be there. Raises :class:`InvalidRequest`."""
    found = fields.get(name) if isinstance(fields, dict) else None
    if type(found) is not str or not found:
        raise InvalidRequest(f'The body must be an object with "{name}", a string.', field=name)
    return found


def _metadata(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    is_good = isinstance(given, dict) and len(given) <= _MOST_PAIRS
    if not is_good or not all(
        type(value) is str and len(name) <= _LONGEST_NAME and len(value) <= _LONGEST_VALUE
        for name, value in given.items()
    ):
        raise InvalidRequest(
            f'"metadata" must be an object of at most {_MOST_PAIRS} strings: names of up to {_LONGEST_NAME} '
            f"characters, values of up to {_LONGEST_VALUE}.",
            field="metadata",
        )
    return dict(given)
