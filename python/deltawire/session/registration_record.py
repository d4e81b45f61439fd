"""The records that the ranks of a job exchange before they connect, as bytes of one length.

Other ranks' records have a limited length, are read as JSON and checked field by field; nothing is
unpickled.
"""

import dataclasses
import hmac
import ipaddress
import json
import secrets
import socket
import struct
from collections.abc import Callable

from deltawire import _core, foreign_json
from deltawire.errors import make_error, printable
from deltawire.session import terms
from deltawire.session.terms import TEXT_BYTES

_TOKEN_BYTES = 32
_HOST_BYTES = 255
# A packed record: magic, u32 length, JSON, zeros. Twice as long as the texts can be.
RECORD_BYTES = 8192
_HEAD = struct.Struct("<4sI")
_MAGIC = b"DWOF"


@dataclasses.dataclass
class RegistrationRecord:
    """A rank's registration record. Sent with field names, so that any version can read it.

    Attributes:
        settings: what must be equal on all ranks, as text (`Terms.text`).
        host_name: of the machine.
        endpoint: (host, port) of the rank's listener, or None with a problem.
        problem: why this rank can't take part; sent so that no rank waits for it.
        token: random bytes; all ranks use rank 0's.
        proof: that the rank knows the secret, if it has one: an HMAC of its `token`.
    """

    settings: str = ""
    host_name: str = dataclasses.field(default_factory=lambda: socket.gethostname())
    endpoint: tuple[str, int] | None = None
    problem: str | None = None
    token: bytes = dataclasses.field(default_factory=lambda: secrets.token_bytes(_TOKEN_BYTES))
    proof: bytes | None = None


def packed(record: RegistrationRecord) -> bytes:
    """The record as RECORD_BYTES bytes."""
    fields = dataclasses.asdict(record)
    for name in ("token", "proof"):
        fields[name] = fields[name] and fields[name].hex()
    text = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    return (_HEAD.pack(_MAGIC, len(text)) + text).ljust(RECORD_BYTES, b"\0")


def unpacked(data: bytes, rank: int) -> RegistrationRecord:
    """The record that `packed` encoded; raises "Corrupt", naming the rank, for anything else."""
    try:
        return _read_record(data)
    except (struct.error, *foreign_json.UNFIT) as cause:
        raise make_error(
            "Corrupt",
            f"what rank {rank} sent at registration can't be read ({cause}); do all "
            "ranks run the same deltawire?",
            rank,
        ) from None


def _read_record(data: bytes) -> RegistrationRecord:
    magic, length = _HEAD.unpack_from(data)
    if magic != _MAGIC or length > len(data) - _HEAD.size:
        raise ValueError("no record")
    fields = foreign_json.parse(data[_HEAD.size : _HEAD.size + length].decode("utf-8"))
    if type(fields) is not dict:
        raise TypeError("not an object")
    endpoint = fields["endpoint"]
    if endpoint is not None:
        host, port = _typed(endpoint, list)
        ipaddress.ip_address(_text(host, _HOST_BYTES))
        if not 1 <= _typed(port, int) <= 65_535:
            raise ValueError("no such port")
        endpoint = (host, port)
    problem, proof = fields["problem"], fields["proof"]
    return RegistrationRecord(
        settings=_text(fields["settings"], TEXT_BYTES),
        host_name=_text(fields["host_name"], _HOST_BYTES),
        endpoint=endpoint,
        problem=None if problem is None else _text(problem, TEXT_BYTES),
        token=_token(fields["token"]),
        proof=None if proof is None else _token(proof),
    )


def _typed(value, kind: type):
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} expected")
    return value


def _text(value, most: int) -> str:
    """The text, made printable for a message."""
    text = _typed(value, str)
    if len(text.encode("utf-8", "replace")) > most:
        raise ValueError(f"a text of more than {most} bytes")
    return printable(text, TEXT_BYTES)


def _token(value) -> bytes:
    token = bytes.fromhex(_typed(value, str))
    if len(token) != _TOKEN_BYTES:
        raise ValueError(f"a token of {len(token)} bytes")
    return token


def check_alike(
    records: list[RegistrationRecord], whole_of: Callable[[int, str], terms.Whole] | None = None
) -> None:
    """Raises the same error on every rank: "Aborted": a rank has a problem. "Mismatch": a rank has
    other settings (see `terms.check`, also for `whole_of`)."""
    for rank, record in enumerate(records):
        if record.problem is not None:
            raise make_error("Aborted", f"rank {rank} could not register: {record.problem}", rank)
    terms.check([record.settings for record in records], whole_of)


def check_endpoints(records: list[RegistrationRecord]) -> None:
    """Raises the same error on every rank: "InvalidArgument" if a rank listens on loopback, which
    another machine can't reach; "Corrupt" if one has no endpoint."""
    for rank, record in enumerate(records):
        if record.endpoint is None:
            raise make_error("Corrupt", f"rank {rank} says no endpoint", rank)
        far = next((r for r, o in enumerate(records) if o.host_name != record.host_name), None)
        if far is not None and ipaddress.ip_address(record.endpoint[0]).is_loopback:
            raise make_error(
                "InvalidArgument",
                f"rank {rank} listens on {record.endpoint[0]}, which rank {far} on "
                f"{records[far].host_name} can't reach; set MASTER_ADDR to an address of rank 0's "
                "machine, or pass interface=",
                rank,
            )


def check_secret(records: list[RegistrationRecord], own: int, secret: bytes | None) -> None:
    """Raises "Unauthorized" if a rank has another secret than rank `own`, or only some have one."""
    for rank, record in enumerate(records):
        if secret is None and record.proof is not None:
            known = f"rank {rank} has a token of its own and rank {own} has none"
        elif secret is not None and record.proof is None:
            known = f"rank {own} has a token of its own and rank {rank} has none"
        elif secret is not None and not hmac.compare_digest(
            record.proof, proof(secret, record.token)
        ):
            known = f"rank {rank} has another token than rank {own}"
        else:
            continue
        raise make_error(
            "Unauthorized", f"{known}; set DELTAWIRE_TOKEN, or token=, alike on every rank", rank
        )


def proof(secret: bytes, token: bytes) -> bytes:
    """A proof that the rank of a record with this token knows the secret."""
    return hmac.digest(secret, b"deltawire offer " + token, "sha256")


def mesh_of(records: list[RegistrationRecord], rank: int, secret: bytes | None) -> _core.Mesh:
    """What a session needs to connect to all ranks.

    Without a secret the token is rank 0's, which came through the process group. With one it is
    derived from both, so that it is unknown to other jobs with the same secret, and to anyone who
    only saw the gathered records.
    """
    token = records[0].token
    if secret is not None:
        token = hmac.digest(secret, b"deltawire token " + token, "sha256")
    endpoints = [record.endpoint for record in records]
    return _core.Mesh(rank, endpoints, token, records[0].settings)
