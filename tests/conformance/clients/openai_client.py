"""OpenAI's own client: files and batches, its errors and its retries."""

import hashlib
import json
import time
from typing import Any

import httpx2
import openai

from tests.conformance.clients.steps import WRONG_KEY, Target, take

URL = "/v1/models/half:predict"
ENDED = {"completed", "failed", "expired", "cancelled"}


def _client(target: Target, key: str = "") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{target.url}/v1", api_key=key or target.key)


def _rows(number: int) -> bytes:
    rows = [
        {"custom_id": f"row-{n}", "method": "POST", "url": URL, "body": {"instances": [float(n)]}}
        for n in range(number)
    ]
    return "\n".join(map(json.dumps, rows)).encode()


def _ended(client: openai.OpenAI, batch_id: str) -> Any:
    while (batch := client.batches.retrieve(batch_id)).status not in ENDED:
        time.sleep(0.2)
    return batch


def _refused(call: Any) -> dict[str, Any]:
    try:
        return {"answered": str(call())}
    except openai.APIStatusError as error:
        return {"kind": type(error).__name__, "code": error.code, "status": error.status_code}


def a_file(target: Target) -> Any:
    """Made, listed, read and deleted."""
    client = _client(target)
    made = client.files.create(purpose="batch", file=("rows.jsonl", _rows(2)))
    found = client.files.retrieve(made.id)
    listed = [one.id for one in client.files.list(purpose="batch")]
    content = client.files.content(made.id).content
    deleted = client.files.delete(made.id)
    return {
        "same": (found.bytes == len(_rows(2)), found.filename, found.purpose, found.status),
        "listed": made.id in listed,
        "content": content == _rows(2),
        "deleted": (deleted.id == made.id, deleted.deleted),
        "then": _refused(lambda: client.files.retrieve(made.id)),
    }


def a_file_in_parts(target: Target) -> Any:
    """One by its parts, out of order; one by the client's own helper; one that is cancelled."""
    client, data = _client(target), _rows(1000)
    half = len(data) // 2
    made = client.uploads.create(bytes=len(data), filename="rows.jsonl", mime_type="application/jsonl", purpose="batch")
    last, first = [client.uploads.parts.create(made.id, data=part).id for part in (data[half:], data[:half])]
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    wrong = _refused(lambda: client.uploads.complete(made.id, part_ids=[last, first], md5=md5))
    done = client.uploads.complete(made.id, part_ids=[first, last], md5=md5)
    assert done.file is not None
    large = b"\n".join([data] * 700)  # more than one part of the client's own size
    helped = client.uploads.upload_file_chunked(
        file=large, filename="large.jsonl", bytes=len(large), mime_type="application/jsonl", purpose="batch"
    )
    assert helped.file is not None
    over = client.uploads.create(bytes=1, filename="x", mime_type="text/plain", purpose="batch")
    return {
        "pending": (made.object, made.status, made.bytes == len(data), made.expires_at - made.created_at),
        "wrong": wrong,
        "completed": (done.status, done.file.filename, client.files.content(done.file.id).content == data),
        "helped": (len(large) > 1 << 26, client.files.content(helped.file.id).content == large),
        "cancelled": client.uploads.cancel(over.id).status,
    }


def a_batch(target: Target) -> Any:
    """A batch of 200 lines, and one that is wrong."""
    client = _client(target)
    rows = _rows(200) + b"\nno json\n"
    file = client.files.create(purpose="batch", file=("rows.jsonl", rows))
    made = client.batches.create(
        input_file_id=file.id, endpoint=URL, completion_window="24h", metadata={"run": "nightly"}
    )
    batch = _ended(client, made.id)
    lines = [json.loads(one) for one in client.files.content(batch.output_file_id).text.splitlines()]
    (wrong,) = [json.loads(one) for one in client.files.content(batch.error_file_id).text.splitlines()]
    return {
        "counts": batch.request_counts.to_dict(),
        "status": batch.status,
        "metadata": batch.metadata,
        "listed": next(iter(client.batches.list(limit=1))).id == made.id,
        "right": all(
            one["response"]["body"]["predictions"] == [int(one["custom_id"].split("-")[1]) / 2 + 2] for one in lines
        ),
        "lines": len({one["custom_id"] for one in lines}),
        "wrong": wrong["error"]["code"],
    }


def a_batch_whose_answer_was_lost(target: Target) -> Any:
    """The client's own retry, with a key given to it, finds the batch that its first try made."""
    sent: list[str] = []

    def lose(response: Any) -> None:
        sent.append(response.request.headers["Idempotency-Key"])
        if len(sent) == 1:
            msg = "the answer was lost"
            raise httpx2.ReadError(msg, request=response.request)

    client = _client(target)
    file = client.files.create(purpose="batch", file=("rows.jsonl", _rows(3)))
    web = openai.DefaultHttpxClient(event_hooks={"response": [lose]})
    made = client.with_options(http_client=web).batches.create(
        input_file_id=file.id, endpoint=URL, completion_window="24h", extra_headers={"Idempotency-Key": "nightly 17"}
    )
    of_this = [one.id for one in client.batches.list() if one.input_file_id == file.id]
    return {"sent": sent, "batches": len(of_this), "same": of_this == [made.id]}


def a_cancelled_batch(target: Target) -> Any:
    client = _client(target)
    file = client.files.create(purpose="batch", file=("rows.jsonl", _rows(1000)))
    made = client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h")
    asked = client.batches.cancel(made.id).status
    return {"asked": asked, "ended": _ended(client, made.id).status}


def refusals(target: Target) -> Any:
    client, other = _client(target), _client(target, WRONG_KEY)
    file = client.files.create(purpose="batch", file=("rows.jsonl", _rows(1)))
    return {
        "wrong key": _refused(other.files.list),
        "unknown file": _refused(lambda: client.files.retrieve("file-nobody")),
        "unknown batch": _refused(lambda: client.batches.retrieve("batch_nobody")),
        "wrong purpose": _refused(lambda: client.files.create(purpose="assistants", file=("x", b"x"))),
        "wrong endpoint": _refused(
            lambda: client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
        ),
    }


if __name__ == "__main__":
    take(__name__)
