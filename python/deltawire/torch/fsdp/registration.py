"""What `register` does for models made by fully_shard or the FSDP-based replicate."""

import dataclasses

import torch
import torch.distributed as dist

from deltawire.session.terms import Terms, tensor_line
from deltawire.torch.core import arguments, bootstrap
from deltawire.torch.core.settings import ExchangeSettings, OptimizerUses, Settings
from deltawire.torch.fsdp.covered import Covered
from deltawire.torch.fsdp.groups import Group, check_free, find_shards, groups_of
from deltawire.torch.fsdp.hook import ShardedHook
from deltawire.torch.fsdp.replica_agreement import ReplicaAgreement


def register_sharded(model: torch.nn.Module, spec: str, settings: Settings) -> ShardedHook:
    """Does the work of `register` for a sharded model. The ranks with the same rows form a session;
    the ranks that share a replica form another, to end steps alike.

    Two collectives, one on each group, so that all ranks learn of an error on any of them.
    """
    meeting = _Registration(model, settings)
    failed = None
    try:
        meeting.meet_replicas(spec)
    except Exception as cause:
        failed = cause
    if meeting.shard_group is not None:
        meeting.meet_shards(failed)
    elif failed is not None:
        raise failed
    return meeting.hook()


class _Registration:
    """Collects the results of the two meetings until the hook can be made."""

    def __init__(self, model: torch.nn.Module, settings: Settings) -> None:
        groups = groups_of(model)
        self.shard_group = groups[0].shard_group if groups[0].shard_count > 1 else None
        self._model, self._groups = model, groups
        self._settings = settings
        self._made: ExchangeSettings | None = None
        self._uses: OptimizerUses | None = None

    def _meeting(self, group: dist.ProcessGroup) -> bootstrap.Meeting:
        return bootstrap.Meeting(group, self._groups[0].device, names_globally=True)

    def meet_replicas(self, spec: str) -> None:
        """Meets the ranks with the same rows."""
        given, replicas = self._settings, self._groups[0].replicas
        with self._meeting(replicas) as self._replicas:
            made = given.exchange(arguments.named(spec, "a sharded model"), replicas)
            given.check_no_tier()
            find_shards(self._model, self._groups)
            self._covered = Covered(self._model, self._groups)
            check_free(self._groups)
            trained = {id(s.parameter): s.name for group in self._groups for s in group.shards}
            arguments.warn_of_rules_without_tensor(made.spec, trained.values(), dist.get_rank())
            rows = [(s.name, s.shape, s.dtype_name) for group in self._groups for s in group.shards]
            self._uses = made.optimizer_uses(trained, rows, dist.get_world_size(replicas))
            self._made = made.coded_for(
                {group.device for group in self._groups},
                # Frozen ones may be trained later; what can't be exchanged never is.
                {s.dtype for group in self._groups for s in group.shards} & set(arguments.DTYPES),
                self._replicas.place[0],  # which errors of the session name
            )
            self._terms = Terms(
                "register of fully_shard",
                _lines(self._groups),
                **self._made.terms(),
                optimizer=self._uses.name,
                replicas=dist.get_world_size(replicas),
                shards=self._groups[0].shard_count,
            )
            self._replicas.agree_on(self._terms)
            self._replicas.listen(given.connection)

    def meet_shards(self, failed: Exception | None) -> None:
        """Meets the ranks that share this replica. Raises `failed`, and lets them know of it."""
        with self._meeting(self.shard_group) as self._shards:
            if failed is not None:
                raise failed
            self._shards.agree_on(self._terms)
            # What they say to end a step alike is small, and no experiment's.
            own = dataclasses.replace(self._settings.connection, link=None, carrier="tcp")
            self._shards.listen(own)

    def hook(self) -> ShardedHook:
        """Connects, and attaches the hook to the model."""
        made = self._made
        made.choice.log(dist.get_rank())
        session = made.connect(self._replicas)
        try:
            agreement = self._agreement()
        except BaseException:
            session.close()
            raise
        steps = made.step_rules(self._uses, self._groups[0].replicas)
        every = self._settings.summary_every
        carrier = self._replicas.carrier
        hook = ShardedHook(
            session, self._groups, agreement, steps, summary_every=every, carrier=carrier
        )
        hook.attach(self._model, self._covered)
        return hook

    def _agreement(self) -> ReplicaAgreement | None:
        if self.shard_group is None:
            return None
        options = arguments.Coding(0, threads=1).options()
        arrival_ms = self._made.arrival_timeout_ms
        session = self._shards.connect(ReplicaAgreement.SPEC, options, arrival_ms)
        return ReplicaAgreement(session, self._made.timeout_ms)


def _lines(groups: list[Group]) -> list[str]:
    """A line for each parameter of each group, with its whole shape."""
    return [
        tensor_line(shard.name, shard.dtype_name, shard.parameter.shape, f"in {group.name}")
        for group in groups
        for shard in group.shards
    ]
