"""Keys of NATS: as its own tools write them, and nothing that only looks like one."""

import base64

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from signalbox.program import nkeys
from signalbox.program.errors import Misconfigured
from signalbox.wire.names import host_user, is_host_user

SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
"""A pair of the documentation of NATS."""


def test_a_public_key_is_the_one_that_nats_tools_make_of_the_seed() -> None:
    assert nkeys.public(SEED) == PUBLIC


def test_a_signature_is_the_nonce_s_and_the_key_s() -> None:
    text = nkeys.sign(SEED, "nonce").decode()
    signature = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    raw = base64.b32decode(PUBLIC)[1:-2] if len(PUBLIC) % 8 == 0 else b""
    key = Ed25519PublicKey.from_public_bytes(raw)
    key.verify(signature, b"nonce")
    with pytest.raises(InvalidSignature):
        key.verify(signature, b"another")


def test_every_key_is_new_well_formed_and_named_after_itself() -> None:
    seeds = {nkeys.mint() for _ in range(20)}
    publics = {nkeys.public(seed) for seed in seeds}
    assert len(seeds) == len(publics) == 20
    assert all(nkeys.PUBLIC.fullmatch(public) and is_host_user(host_user(public)) for public in publics)


@pytest.mark.parametrize(
    "text",
    ["", "x", PUBLIC, SEED[:-1], SEED.lower(), SEED[:-1] + "A", SEED.replace("SUA", "SAA"), "S" * 58, "\u00e9" * 58],
    ids=["empty", "short", "public", "cut", "lower", "typo", "account", "crc", "letters"],
)
def test_what_is_no_user_s_seed_is_refused_and_not_repeated(text: str) -> None:
    for act in (nkeys.public, lambda seed: nkeys.sign(seed, "nonce")):
        with pytest.raises(Misconfigured, match="no seed of a NATS user") as refused:
            act(text)
        assert len(text) < 3 or text not in refused.value.public_message
