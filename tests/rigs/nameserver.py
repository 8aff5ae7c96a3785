"""A name server on loopback whose one answer a test changes: the addresses that stand behind every name."""

import socket
import struct
import threading
from types import TracebackType
from typing import Final, Self

from signalbox.ops.ports import HOST

_HEADER: Final = struct.Struct("!6H")
_ANSWER: Final = struct.Struct("!HHHIH4s")
_RESPONSE: Final = 0x8580
"""Authoritative, recursion desired and available, no error."""
_TO_THE_NAME: Final = 0xC00C
_A: Final = 1


class NameServer:
    """addresses: of IPv4, in this order; none are of IPv6, and no other records. target: as gRPC takes it."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((HOST, 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def target(self, port: int) -> str:
        """What a gRPC client dials to ask here for the addresses."""
        return f"dns://{HOST}:{self._socket.getsockname()[1]}/plugin.test:{port}"

    def _serve(self) -> None:
        while True:
            asked, client = self._socket.recvfrom(4096)
            if not asked:
                return
            self._socket.sendto(self._answer(asked), client)

    def _answer(self, asked: bytes) -> bytes:
        number = _HEADER.unpack_from(asked)[0]
        end = asked.index(b"\0", _HEADER.size) + 5
        (kind,) = struct.unpack_from("!H", asked, end - 4)
        found = self.addresses if kind == _A else []
        records = [_ANSWER.pack(_TO_THE_NAME, _A, 1, 0, 4, socket.inet_aton(address)) for address in found]
        return _HEADER.pack(number, _RESPONSE, 1, len(found), 0, 0) + asked[_HEADER.size : end] + b"".join(records)
