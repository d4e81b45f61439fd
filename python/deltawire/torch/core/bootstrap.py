"""How the ranks of a job find each other: one gather over their process group.

Each rank contributes one registration record: its settings, address and problem, if any.
"""

import contextlib
import datetime
import logging
import os
import threading
from collections.abc import Iterator

import torch
import torch.distributed as dist

from deltawire import _core, arguments
from deltawire.errors import invalid, make_error
from deltawire.session.leaving import problem_of
from deltawire.session.registration_record import (
    RegistrationRecord,
    check_alike,
    check_endpoints,
    check_secret,
    mesh_of,
    packed,
    proof,
    unpacked,
)
from deltawire.session.terms import Terms, Whole, named
from deltawire.torch.core.arguments import device_of
from deltawire.torch.core.group_carrier import GroupCarrier
from deltawire.torch.core.leader_decides import told_by

logger = logging.getLogger("deltawire")
_FIRST_NEWS_AFTER = 10.0  # seconds; and then each minute
_NEXT_NEWS_AFTER = 60.0


def given_or_world(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Returns the group, or the world where it is None. Raises InvalidArgumentError before
    init_process_group, TypeError for what is no group."""
    arguments.check_kind("group", group, dist.ProcessGroup, "a ProcessGroup that has this rank")
    if not dist.is_initialized():
        raise invalid("there is no process group; call torch.distributed.init_process_group first")
    return dist.group.WORLD if group is None else group


class Meeting:
    """The ranks of a process group meet: `with Meeting(group) as meeting:` checks this rank's
    arguments and calls `agree_on` and, where they are to connect, `listen`; then `connect` opens
    the session.

    The end of the block is the gather, one collective on the group under its own timeout; where
    settings differ, one or two broadcasts tell how. The other ranks, which wait in the gather, hear
    of any exception in the block. It raises as `check_alike` and `check_endpoints`.

    Attributes:
        place: (rank, world size) in the group.
        encryption: of the connections, after `listen`.
        carrier: of messages, "tcp" or "group", after `listen`.
    """

    def __init__(
        self, group, near: torch.device | None = None, *, names_globally: bool = False
    ) -> None:
        """
        Args:
            near: the model's device, for a group of GPUs alone.
            names_globally: errors of the session name global ranks.
        """
        self.place = dist.get_rank(group), dist.get_world_size(group)
        self._group = group
        self._numbers = dist.get_process_group_ranks(group) if names_globally else None
        self._near = near
        self._terms: Terms | None = None
        self._text = ""
        self._listener: _core.Listener | None = None
        self._secret: bytes | None = None
        self._link: _core.LinkShape | None = None
        self.encryption, self.carrier = "auto", "tcp"
        self._connect_timeout_ms = 0
        self._records: list[RegistrationRecord] = []

    def __enter__(self) -> "Meeting":
        return self

    def agree_on(self, terms: Terms) -> None:
        """Sets what must be equal on all ranks."""
        self._terms, self._text = terms, terms.text

    def listen(self, connection: arguments.Connection) -> None:
        """Opens this rank's listener (see the function `listen`), after a check of the arguments,
        which are kept for `connect`. Raises InvalidArgumentError, TypeError."""
        seconds, self._link = connection.connect_timeout, connection.link
        self._connect_timeout_ms = arguments.timeout_in_ms(seconds, "connect_timeout")
        arguments.check_listening(connection.interface, self._link)
        self._secret = arguments.secret(connection.token)
        self.encryption = arguments.encryption(connection.encryption, self._secret is not None)
        connection.check_carrier(self.encryption)
        self.carrier = connection.carrier
        self._listener = listen(connection.interface, arguments.ports(connection.port))
        _core.check_descriptors(*self.place)

    def __exit__(self, kind, cause, traceback) -> None:
        if cause is not None and not isinstance(cause, Exception):
            return  # Ctrl-C must not wait for anybody
        record = RegistrationRecord(settings=self._text)
        if cause is None and self._listener is not None:
            record.endpoint = self._listener.endpoint
            if self._secret is not None:
                record.proof = proof(self._secret, record.token)
        if cause is not None:
            record.problem = problem_of(cause)
        self._records = gather_records(record, self._group, self._near)
        if any(each.problem is not None for each in self._records):
            if cause is None:
                check_alike(self._records)
            return
        check_alike(self._records, self._whole_of)
        if self._listener is not None:
            check_endpoints(self._records)
            check_secret(self._records, self.place[0], self._secret)

    def _whole_of(self, rank: int, name: str) -> Whole:
        return told_by(rank, self._terms.whole(name), self._group, self._near)

    def connect(
        self, spec: _core.Spec, options: _core.ReducerOptions, arrival_timeout_ms: int
    ) -> _core.Session:
        """Opens the session with all ranks. Call it after the `with` block."""
        mesh = self._mesh()
        mesh.arrival_timeout_ms = arrival_timeout_ms
        if self.carrier == "group" and self.place[1] > 1:
            # A message may be under way for as long as a rank may be late, and its own time.
            limit = datetime.timedelta(milliseconds=2 * arrival_timeout_ms)
            mesh.set_carrier(GroupCarrier(self._group, self._near, limit))
        return _core.Session(self._listener, mesh, spec.text, options)

    def join(self) -> _core.Connection:
        """Like `connect`, for a parameter server."""
        return _core.Connection(self._listener, self._mesh())

    def _mesh(self) -> _core.Mesh:
        mesh = mesh_of(self._records, self.place[0], self._secret)
        mesh.set_encryption(self.encryption)
        mesh.shape = self._link
        if self._numbers is not None:
            mesh.name_ranks("global rank", self._numbers)
        mesh.connect_timeout_ms = self._connect_timeout_ms
        return mesh


def listen(interface: str | None, ports: tuple[int, int]) -> _core.Listener:
    """Listens where the other ranks can reach this one, on the first port of the range that is
    free: on `interface` (a name or address), else on the address from which packets to MASTER_ADDR
    leave, else (no MASTER_ADDR) on loopback."""
    if interface is None:
        master = os.environ.get("MASTER_ADDR")
        interface = _core.local_address_towards(master or "127.0.0.1")
    return _core.Listener(interface, *ports)


def gather_records(
    record: RegistrationRecord, group, near: torch.device | None = None
) -> list[RegistrationRecord]:
    """Gathers every rank's record, in rank order: one collective on `group`, under the group's own
    timeout. `near` is as for `Meeting`.

    A rank that waits long logs whom it waits for. Raises "Timeout", naming them, when the group
    gives up, and "Corrupt", on every rank, for a record that can't be read.
    """
    own = torch.frombuffer(bytearray(packed(record)), dtype=torch.uint8)
    own = own.to(device_of(group, near))
    slots = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    roll = _Roll(group)
    with roll.news():
        try:
            dist.all_gather(slots, own, group=group)
        except RuntimeError as cause:
            missing = roll.missing()
            if not missing:
                raise
            raise make_error(
                "Timeout",
                f"{named(missing)} never made the call in which rank {roll.rank} waited "
                f"(register, LocalSteps or load_state_dict); the process group gave up: {cause}",
                missing[0],
            ) from cause
    return [unpacked(slot.cpu().numpy().tobytes(), rank) for rank, slot in enumerate(slots)]


class _Roll:
    """Which ranks have entered a gather. Each says so in the process group's store, because a
    gather itself reveals nothing until all have arrived. Without a store nobody is named."""

    _gathers: dict[str, int] = {}  # by group: all of its ranks make the same calls

    def __init__(self, group) -> None:
        self.rank = dist.get_rank(group)
        self._world_size = dist.get_world_size(group)
        name = str(dist.get_process_group_ranks(group))
        number = self._gathers[name] = self._gathers.get(name, 0) + 1
        self._key = f"deltawire/{name}/{number}/"
        self._store = None
        with contextlib.suppress(Exception):
            store = dist.distributed_c10d._get_default_store()
            self._store = store.clone()  # a wait on the shared one would block it
            self._store.set(f"{self._key}{self.rank}", "here")

    def missing(self) -> list[int]:
        """The ranks that have not entered the gather yet."""
        if self._store is None:
            return []
        try:
            ranks = range(self._world_size)
            return [rank for rank in ranks if not self._store.check([f"{self._key}{rank}"])]
        except Exception:  # rank 0 may have the store, and be gone
            return []

    @contextlib.contextmanager
    def news(self) -> Iterator[None]:
        """Logs, while the block takes long, whom this rank waits for."""
        over = threading.Event()
        thread = threading.Thread(target=self._tell, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()

    def _tell(self, over: threading.Event) -> None:
        pause, waited = _FIRST_NEWS_AFTER, 0.0
        while not over.wait(pause):
            waited, pause = waited + pause, _NEXT_NEWS_AFTER
            missing = self.missing()
            if missing and not over.is_set():
                logger.warning(
                    "rank %d has waited %.0f s for %s to make the same call (register, LocalSteps "
                    "or load_state_dict); the process group's timeout ends the wait",
                    self.rank,
                    waited,
                    named(missing),
                )
