"""The exchange between nodes of a model that fully_shard has sharded within them (HSDP)."""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import DeltawireError, check_state_given, invalid, make_error
from deltawire.session.history import History
from deltawire.session.leaving import gave_up
from deltawire.torch.core import arguments
from deltawire.torch.core.backward_pass import after_backward, cut_short, in_backward
from deltawire.torch.core.checkpoint import kept_by, kept_of
from deltawire.torch.core.line_energies import Beside
from deltawire.torch.core.optimizer_rules.lines import local_part
from deltawire.torch.core.replica_check import ReplicaCheck
from deltawire.torch.core.settings import StepRules
from deltawire.torch.fsdp.covered import Covered
from deltawire.torch.fsdp.groups import AllReduce, Group
from deltawire.torch.fsdp.replica_agreement import ReplicaAgreement
from deltawire.torch.gradient_hook import GradientHook
from deltawire.torch.metrics.explanation import Explanation

_END_OF_STEP = "end of step"


class ShardedHook(GradientHook):
    """A rank's compressed exchange with the ranks that have the same rows of the model; made by
    `register`.

    A backward pass whose gradients are reduced is a step. Each of FSDP's parameter groups is a
    bucket. With twins it is coded on its GPU; otherwise it goes through pinned memory (see
    `Staging`). It is exchanged while backward continues, unless torch reads the gradient before the
    end of the pass (because it accumulates or converts it, or has a user's hook for it). One more
    exchange ends the step; it appears in `buckets`.

    A failure on any rank is raised at the end of the backward pass under way, on every rank of the
    model, so that torch's own collectives stay in step. It is a typed DeltawireError, also in
    `last_error`; the hook can't be used any more. If a rank fails at the very end of a step, or
    outside of the exchange, ranks with other rows may notice it one step later, or when torch's own
    collectives fail.

    A forward pass with gradients raises DeltawireError ("State"), and ends the exchange on every
    rank, if the model now trains parameters that fully_shard has not sharded.

    Attributes:
        rank, world_size: among the ranks with the same rows. Messages, and `suspect`, use global
            ranks.
        replicas: the global ranks with the same rows.
        optimizer_rules: how the optimizer steps some parameters.

    It can't be copied or pickled (TypeError), and neither can the model: save its `state_dict`.

    Thread rule: torch calls it from the thread of backward; `state_dict`, `load_state_dict` and
    `close` belong to the training loop, between steps; everything else may be called from any
    thread.
    """

    _instead = "keep its state_dict() instead"
    _nonfinite_advice = (
        'with register(..., scaler=the GradScaler) or nonfinite="pass" such a step comes out as '
        "NaN, for you to skip, and leaves no trace"
    )

    def __init__(
        self,
        session: _core.Session,
        groups: list[Group],
        agreement: ReplicaAgreement | None,
        rules: StepRules,
        *,
        summary_every: int | None,
        carrier: str,
    ) -> None:
        replicas = groups[0].replicas
        self._agreement = agreement  # None: this rank has all rows
        place = dist.get_rank(replicas), dist.get_world_size(replicas)
        history = History(dist.get_rank(), self._nonfinite_advice)
        shards = [shard for group in groups for shard in group.shards]
        gradient_bytes = sum(shard.room * shard.dtype.itemsize for shard in shards)
        more = {"group": replicas, "summary_every": summary_every, "carrier": carrier}
        super().__init__(session, place, rules, gradient_bytes, history, **more)
        self._groups = groups
        self.replicas = dist.get_process_group_ranks(replicas)
        self._pending: list[concurrent.futures.Future] = []  # of the step under way
        self._is_open = False

    def attach(self, model: torch.nn.Module, covered: Covered) -> None:
        """Takes over the all-reduce of every group, and checks after each forward pass that the
        groups still contain the whole model."""
        for group in self._groups:
            group.take_over(AllReduce(group, self, self.all_reduce))
        self._covered = covered
        self._handle = model.register_forward_hook(torch.compiler.disable(self._after_forward))

    def _give_up_cut_step(self) -> None:
        """Between passes: ends the exchange if an exception, a user's for example, has ended the
        last backward pass in the middle of a step, so that the steps before it can be saved."""
        if not self._is_open or self.closed or in_backward() or self.last_error is not None:
            return
        self._give_up(cut_short(self._number, self._step, self._who))
        if self._agreement is not None:
            self._agreement.abort(self.last_error)

    def _after_forward(self, _model: torch.nn.Module, _inputs, _outputs) -> None:
        if not torch.is_grad_enabled():
            return
        try:
            if self._is_open and self.parsed_spec.keeps_residual and not in_backward():
                # What left in a pass that was cut short has taken residuals along, to no parameter.
                raise cut_short(self._number, self._step)
            self._covered.check()
        except DeltawireError as cause:
            self._give_up(cause)
            self._leave()

    def all_reduce(self, group: Group, gradient: torch.Tensor) -> None:
        """torch's all-reduce hook of a group: replaces its flat gradient by the mean over the
        replicas, at once or by the end of the backward pass. Never raises: that would leave the
        other ranks waiting in torch's next collective."""
        try:
            if gradient.is_cuda:  # torch converts it in this stream, and frees it in another order
                gradient.record_stream(torch.cuda.current_stream(gradient.device))
            if not group.all_reduces:
                group.keep(gradient)
                return
            self._open_step()
            group.add_kept(gradient)
            done = self._exchange(group, gradient)
            if group.later_steps_look_at():
                done.result()
                self._staging.follow()
                if group.sums:
                    gradient *= self.world_size
        except Exception as cause:
            self._give_up(cause)
            self._raise_at_end()

    def _open_step(self) -> None:
        if self.closed:
            raise make_error("State", "the hook is closed; register the model again", self._number)
        first = not self._is_open
        self._raise_at_end()
        if first:
            self._begin_step()

    def _compared(self, check: ReplicaCheck) -> int:
        shards = (shard for group in self._groups for shard in group.shards)
        rows = ((shard.name, shard.parameter.to_local()) for shard in shards)
        return check.agreed(self._step, rows)

    def _raise_at_end(self) -> None:
        # Each time: the pass that opened the step may have been cut short, and this may be another.
        after_backward(self._end_step)
        self._is_open = True

    def _exchange(self, group: Group, gradient: torch.Tensor) -> concurrent.futures.Future:
        """Submits a group's gradient; see `_submit`."""
        arguments.check_tensor("a gradient", gradient)
        tensors, source = group.tensors_in(gradient), self._rules.uses.source
        beside = self._beside(group, gradient, tensors)
        if source is None:
            return self._submit(tensors, gradient, beside=beside)
        shards = [(shard.name, shard.parameter) for shard in group.trained]
        addresses, over = source.of_bucket(self._staging, gradient, id(group), shards)
        tensors = [(*at, address) for at, address in zip(tensors, addresses, strict=True)]
        return self._submit(tensors, gradient, over=over, beside=beside)

    def _beside(self, group: Group, gradient: torch.Tensor, tensors: list[tuple]) -> Beside | None:
        """What travels beside a group's gradient; see `LineEnergies`."""
        energies = self._rules.uses.energies
        if energies is None:
            return None
        first, width, rows = gradient.data_ptr(), gradient.element_size(), []
        for shard, (_, address, size, *_) in zip(group.trained, tensors, strict=True):
            at, parameter = (address - first) // width, shard.parameter
            before = parameter.grad if parameter.grad is None else local_part(parameter.grad)
            rows.append((parameter, gradient[at : at + size // width], before))
        return energies.of_bucket(self._staging, gradient, len(self._pending), rows)

    def _submit(
        self,
        tensors: list[tuple],
        memory: torch.Tensor | None,
        last: bool = False,
        over: Callable[[], None] | None = None,
        beside: Beside | None = None,
    ) -> concurrent.futures.Future:
        """Exchanges a bucket, whose tensors are in `memory`; see `_hand_over`. The Future's value
        is whether the mean is finite, or None after an error."""
        bucket, staging = len(self._pending), self._staging
        done = concurrent.futures.Future()
        self._history.ready(tuple(tensor[0] for tensor in tensors))

        def at(host: torch.Tensor | None) -> list[tuple]:
            moved = 0 if host is None else host.data_ptr() - memory.data_ptr()
            return [(name, address + moved, *rest) for name, address, *rest in tensors]

        def store() -> None:
            if memory is not None:
                staging.store(bucket, memory)

        def end(error: DeltawireError | None, report: _core.Report | None) -> None:
            if memory is not None:
                staging.release(memory)
            done.set_result(report.finite if error is None else None)

        step = self._bucket_of_step(bucket, last)
        self._hand_over(bucket, step, memory, at, end, store=store, over=over, beside=beside)
        self._pending.append(done)
        return done

    def _end_step(self) -> None:
        """Ends the step alike on all ranks, after the backward pass and torch's own work."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            results = [done.result() for done in self._pending]  # of all, finite or not
            self._staging.follow()
            if self.last_error is None:
                self._commit(all(results))
        except Exception as cause:
            self._give_up(cause)
        finally:
            self._pending = []
        self._step += 1
        if self.last_error is not None:
            self._leave()

    def _commit(self, finite: bool) -> None:
        if self._agreement is not None:
            finite = self._agreement.all_finite(self._step, finite)
        flag, tensors = None, []
        if self._rules.loss_scale.nonfinite == "pass":
            # Finite rows are reverted, too, if others in the step are not finite.
            where = self._rules.choice.coded_on
            value = 0.0 if finite else float("nan")
            flag = torch.tensor([value], dtype=torch.float32, device=where)
            tensors = [(_END_OF_STEP, flag.data_ptr(), flag.nbytes, (1,))]
        self._submit(tensors, flag, last=True).result()

    def _leave(self) -> None:
        """Raises the first error, on every rank of the model."""
        error = self.last_error
        self._session.abort(error)
        if self._agreement is not None:
            self._agreement.abort(error)
        raise error

    def interrupted(self) -> None:
        """Ends the exchange on every rank after Ctrl-C on this one."""
        super().interrupted()
        if self._agreement is not None:
            self._agreement.abort(f"interrupted on {self._who}")

    @property
    def _who(self) -> str:
        return f"global rank {self._number}"

    def _tell(self, cause: BaseException) -> None:
        """Tells the others why this rank leaves. If it dies in a collective of torch's own because
        another rank has ended, it names that rank."""
        if self._agreement is None:
            super()._tell(cause)
            return
        first = self._agreement.failure() if self.last_error is None else None
        if first is not None:
            self._history.fail(first)
        reason = gave_up(self._number, first or cause, self._who)
        self._session.abort(reason)
        self._agreement.abort(reason)

    def close(self) -> None:
        """Joins the communication threads and says goodbye to the other ranks; idempotent. Happens
        at exit in any case. Later backward passes that reduce gradients raise; the model may be
        registered again."""
        super().close()
        self._handle.remove()
        if self._agreement is not None:
            self._agreement.close()

    def explain(self) -> Explanation:
        """The codec of each parameter's rows in the next step and the bytes they took in the last,
        as a printable table. Call between steps; DeltawireError ("State") within one.
        """
        shards = [shard for group in self._groups for shard in group.shards]
        tensors = [(shard.name, shard.shape, shard.dtype_name) for shard in shards]
        return self._explained(tensors)

    def state_dict(self) -> dict[str, Any]:
        """This rank's state for a checkpoint; every rank saves its own. Call between steps, or
        after a failure: then it is the state after the last committed step, plus the failed step's
        gradients with revert="fold". After an exception in the middle of a backward pass, this
        call ends the exchange on every rank.

        The hook is a `Stateful` of torch.distributed.checkpoint: save({"model": ..., "hook": hook})
        saves the states of all ranks. By global rank, `residuals` has a uint8 tensor and `ranges`
        its rows, (dimension, first, end) by parameter name; the rest is equal on all ranks.
        """
        self._give_up_cut_step()
        state = self._state(steps=self._steps_that_count())
        del state["rank"]  # among the replicas, which have the same rows
        state["residuals"] = kept_by(self._number, state["residuals"])
        state["ranges"] = kept_by(self._number, self._ranges())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned, as `Hook.load_state_dict`. The model's modules may
        have been wrapped in other groups, or in another order.

        Raises InvalidArgumentError (a ValueError) for a state of another rank, number of replicas,
        spec or version, or of other rows; DeltawireError for damaged bytes. Nothing is changed
        then.
        """
        check_state_given(state)
        own = {**state, "rank": self.rank}
        for key in ("residuals", "ranges"):
            if key in state:
                own[key] = kept_of(state, self._number, key)
        self._check_state(own, ("steps",), ("ranges",))
        self._check_ranges(own["ranges"])
        self._load_residuals(own)
        self._step = state["steps"]
        self._go_on_after(self._step)

    def _ranges(self) -> dict[str, tuple[int, int, int] | None]:
        return {shard.name: shard.range for group in self._groups for shard in group.shards}

    def _check_ranges(self, theirs: dict) -> None:
        ours = self._ranges()
        if not isinstance(theirs, dict) or sorted(theirs) != sorted(ours):
            odd = sorted(set(ours) ^ set(theirs))[:3] if isinstance(theirs, dict) else [theirs]
            raise invalid(
                f"the state is of other parameters than this model's, {odd} for instance; load the "
                "state of the same model"
            )
        for name, rows in ours.items():
            found = theirs[name] if theirs[name] is None else tuple(theirs[name])
            if found != rows:
                raise invalid(
                    f"the state has rows {found} (dimension, first, end) of '{name}', but this "
                    f"rank has {rows}; load the state of the same job and rank, or start without"
                )
