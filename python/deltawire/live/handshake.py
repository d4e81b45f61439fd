"""How both ends of a connection prove that they know the token, which is never sent.

The reader sends a magic number and a nonce, the server the same; then the reader's proof, and only
if that is right the server's. A proof is the HMAC-SHA256, keyed with the token, over a fixed text,
the prover's role and both nonces. Nothing else is read before.
"""

import hmac
import os
import time

from deltawire.errors import DeltawireError, make_error
from deltawire.live.connection import Connection

MAGIC = b"DWlive1\n"
NONCE_BYTES = PROOF_BYTES = 32
SECONDS = 5.0  # for all of it, TLS included
_READER, _SERVER = b"reader", b"server"  # of one length


def _proof(secret: bytes, role: bytes, reader: bytes, server: bytes) -> bytes:
    return hmac.digest(secret, b"deltawire live 1 " + role + reader + server, "sha256")


def call(connection: Connection, secret: bytes) -> None:
    """The reader's side.

    Raises:
        DeltawireError: code "Unauthorized" if the server does not know the token, or did not
            accept this one.
    """
    deadline = time.monotonic() + SECONDS
    connection.do_tls_handshake(SECONDS)
    own = os.urandom(NONCE_BYTES)
    connection.send(MAGIC + own)
    answer = connection.receive(len(MAGIC) + NONCE_BYTES, deadline)
    if not answer.startswith(MAGIC):
        raise make_error("Unauthorized", f"{connection.place} is no server of deltawire's weights")
    nonces = own, answer[len(MAGIC) :]
    connection.send(_proof(secret, _READER, *nonces))
    try:
        proof = connection.receive(PROOF_BYTES, deadline)
    except DeltawireError as error:
        if error.code != "PeerLost":
            raise
        raise make_error(
            "Unauthorized",
            f"{connection.place} did not accept the token: set the same DELTAWIRE_TOKEN (or "
            "token=) at both ends",
        ) from None
    if not hmac.compare_digest(proof, _proof(secret, _SERVER, *nonces)):
        raise make_error("Unauthorized", f"{connection.place} does not know the token")


def answer(connection: Connection, secret: bytes) -> bool:
    """The server's side: whether the reader knows the token."""
    deadline = time.monotonic() + SECONDS
    connection.do_tls_handshake(SECONDS)
    hello = connection.receive(len(MAGIC) + NONCE_BYTES, deadline)
    if not hello.startswith(MAGIC):
        return False
    nonces = hello[len(MAGIC) :], os.urandom(NONCE_BYTES)
    connection.send(MAGIC + nonces[1])
    proof = connection.receive(PROOF_BYTES, deadline)
    if not hmac.compare_digest(proof, _proof(secret, _READER, *nonces)):
        return False
    connection.send(_proof(secret, _SERVER, *nonces))
    return True
