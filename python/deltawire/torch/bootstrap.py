"""How the ranks of a job find each other: one gather over their process group."""

import dataclasses
import ipaddress
import os
import secrets
import socket

import torch.distributed as dist

from deltawire import _core
from deltawire.errors import DeltawireError, make_error

_TOKEN_BYTES = 32


@dataclasses.dataclass
class Offer:
    """What a rank tells all others. Sent as a dict, which any version can read.

    Attributes:
        settings: what must be equal on all ranks, as text.
        host_name: of the machine.
        endpoint: (host, port) of the rank's listener, or None with a problem.
        problem: why this rank can't take part; it tells, so that nobody waits for it.
        token: rank 0's is everybody's.
    """

    settings: str = ""
    host_name: str = dataclasses.field(default_factory=lambda: socket.gethostname())
    endpoint: tuple[str, int] | None = None
    problem: str | None = None
    token: bytes = dataclasses.field(default_factory=lambda: secrets.token_bytes(_TOKEN_BYTES))


class Meeting:
    """The ranks of a process group meet: `with Meeting(group) as meeting:` checks this rank's
    arguments, fills in `settings` and calls `listen`; then `connect` opens the session.

    The end of the block is the gather, one collective on the group under its own timeout. Whatever
    is raised in the block, the other ranks hear of: they wait in the gather. It raises as `check`.

    Attributes:
        place: (rank, world size) in the group.
        settings: what must be equal on all ranks, as text.
    """

    def __init__(self, group) -> None:
        self.place = dist.get_rank(group), dist.get_world_size(group)
        self.settings = ""
        self._group = group
        self._listener: _core.Listener | None = None
        self._offers: list[Offer] = []

    def __enter__(self) -> "Meeting":
        return self

    def listen(self, interface: str | None) -> None:
        """Opens this rank's listener, see `listen`."""
        self._listener = listen(interface)

    def __exit__(self, kind, cause, traceback) -> None:
        if cause is not None and not isinstance(cause, Exception):
            return  # Ctrl-C must not wait for anybody
        offer = Offer(settings=self.settings)
        if cause is None:
            offer.endpoint = self._listener.endpoint
        else:
            offer.problem = problem_of(cause)
        self._offers = swap(offer, self._group)
        if cause is None:
            check(self._offers)

    def connect(
        self, spec: str, options: _core.ReducerOptions, link: _core.LinkShape | None
    ) -> _core.Session:
        """The session with all of them, after the block."""
        mesh = mesh_of(self._offers, self.place[0], link)
        return _core.Session(self._listener, mesh, spec, options)


def listen(interface: str | None) -> _core.Listener:
    """Listens where the other ranks can reach this one: on `interface` (a name or address), else
    on the address from which packets to MASTER_ADDR leave, else (no MASTER_ADDR) on loopback."""
    if interface is None:
        master = os.environ.get("MASTER_ADDR")
        interface = _core.local_address_towards(master) if master else "127.0.0.1"
    return _core.Listener(interface)


def swap(offer: Offer, group) -> list[Offer]:
    """Every rank's offer, in rank order; one collective on `group`, under the group's own
    timeout."""
    gathered: list = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, dataclasses.asdict(offer), group=group)
    known = {field.name for field in dataclasses.fields(Offer)}
    return [Offer(**{k: v for k, v in other.items() if k in known}) for other in gathered]


def check(offers: list[Offer]) -> None:
    """Raises, alike on every rank, where the offers don't make a job.

    "Aborted": a rank has a problem. "Mismatch": a rank has other settings. "InvalidArgument": a
    rank listens on loopback, which another machine can't reach.
    """
    for rank, offer in enumerate(offers):
        if offer.problem is not None:
            raise make_error("Aborted", f"rank {rank} could not register: {offer.problem}", rank)
    first = offers[0]
    for rank, offer in enumerate(offers):
        if offer.settings != first.settings:
            raise make_error(
                "Mismatch",
                f"rank {rank} registered with [{offer.settings}] but rank 0 with "
                f"[{first.settings}]; pass the same arguments on every rank",
                rank,
            )
    for rank, offer in enumerate(offers):
        far = next((r for r, o in enumerate(offers) if o.host_name != offer.host_name), None)
        if far is not None and ipaddress.ip_address(offer.endpoint[0]).is_loopback:
            raise make_error(
                "InvalidArgument",
                f"rank {rank} listens on {offer.endpoint[0]}, which rank {far} on "
                f"{offers[far].host_name} can't reach; set MASTER_ADDR to an address of rank 0's "
                "machine, or pass interface=",
                rank,
            )


def mesh_of(offers: list[Offer], rank: int, shape: _core.LinkShape | None) -> _core.Mesh:
    """What a session needs to connect to all of them."""
    endpoints = [offer.endpoint for offer in offers]
    mesh = _core.Mesh(rank, endpoints, offers[0].token, offers[0].settings)
    mesh.shape = shape
    return mesh


def problem_of(cause: Exception) -> str:
    """One line for the other ranks."""
    text = " ".join(str(cause).split())
    return text if isinstance(cause, DeltawireError) else f"{type(cause).__name__}: {text}"
