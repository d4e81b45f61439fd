"""The exchange between nodes of a model that fully_shard has cut within them (HSDP)."""

import concurrent.futures
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import DeltawireError, check_state_given, make_error
from deltawire.history import History
from deltawire.leaving import gave_up
from deltawire.torch.core import arguments
from deltawire.torch.core.backward_pass import after_backward
from deltawire.torch.core.checkpoint import kept_by, kept_of
from deltawire.torch.core.loss_scale import LossScale
from deltawire.torch.core.module_parameters import ModuleParameters
from deltawire.torch.core.significance import SignificanceSource
from deltawire.torch.fsdp.groups import AllReduce, Group
from deltawire.torch.fsdp.replica_agreement import ReplicaAgreement, among
from deltawire.torch.metrics.explanation import Explanation
from deltawire.torch.participant import Participant

_END_OF_STEP = "end of step"


@dataclasses.dataclass(frozen=True)
class StepRules:
    """What holds for every step.

    Attributes:
        timeout_ms: of a bucket.
        loss_scale: asked for once a step.
        source: of what the optimizer can see; None: nothing may be cut by it.
    """

    timeout_ms: int
    loss_scale: LossScale
    source: SignificanceSource | None


class Covered:
    """That groups have all parameters of a model that require gradients, as it is when asked.

    Raises InvalidArgumentError (a ValueError), naming them, where some are in no group now.
    """

    def __init__(self, model: torch.nn.Module, groups: list[Group]) -> None:
        self._in_module = ModuleParameters(model)
        self._places = {place for group in groups for place in group.places}
        if names := self._left_out():
            raise make_error(
                "InvalidArgument",
                f"fully_shard has not cut {_listed(names)}, whose gradients would stay each rank's "
                "own; call fully_shard(model, mesh=...) on the root, too, or freeze them",
            )

    def check(self) -> None:
        """Raises DeltawireError ("State"), naming them, where some are in no group any more."""
        if names := self._left_out():
            raise make_error(
                "State",
                f"fully_shard has not cut {_listed(names)}: frozen, or not there, when the model "
                "was registered, and would differ between ranks; close the hook, call fully_shard "
                "on what is new, and register again",
            )

    def _left_out(self) -> list[str]:
        places = self._places
        return self._in_module.left_out(lambda module, key: (id(module), key) in places)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    words = ", ".join(f"'{name}'" for name in names[:3])
    return f"parameter{'s' * (len(names) > 1)} {words}{more}"


class ShardedHook(Participant):
    """A rank's compressed exchange with the ranks that have the same rows of the model; made by
    `register`.

    A backward pass whose gradients are reduced is a step. Each of FSDP's groups of parameters is a
    bucket: it goes to the other nodes while the pass goes on, where torch doesn't look at the
    gradient before the end of the pass (it does where it adds to one, converts it, or has a hook of
    the user for it). One exchange more ends the step; it is in `buckets`.

    What goes wrong, on whichever rank, is raised by the backward pass under way, at its end, on
    every rank of the model: torch's own collectives stay in step. It is the typed DeltawireError,
    which `last_error` has, too. The hook can't be used any more then. A rank that fails at the very
    end of a step, or elsewhere than here, can show on ranks with other rows one step later, or when
    torch's own collectives fail.

    A forward pass with gradients raises DeltawireError ("State"), and ends the exchange on every
    rank, where the model trains parameters by now that fully_shard has not cut.

    Attributes:
        rank, world_size: among the ranks that have the same rows. In messages, and as `suspect`,
            ranks have their global numbers.
        replicas: the global ranks of those that have the same rows.

    It can't be copied or pickled (TypeError), as little as the model: keep its `state_dict`.

    Thread rule: torch calls it from the thread of backward; `state_dict`, `load_state_dict` and
    `close` belong to the training loop, between steps; everything else may be called from any
    thread.
    """

    _kind = "hook"
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
    ) -> None:
        replicas = groups[0].replicas
        self._agreement = agreement  # None: this rank has all rows
        place = dist.get_rank(replicas), dist.get_world_size(replicas)
        history = History(dist.get_rank(), self._nonfinite_advice)
        super().__init__(session, place, history, group=replicas, summary_every=summary_every)
        self._groups = groups
        self.replicas = dist.get_process_group_ranks(replicas)
        self._rules = rules
        self._scale = 1.0  # of the step under way
        self._step = 0
        self._pending: list[concurrent.futures.Future] = []  # of the step under way
        self._is_open = False

    def __reduce__(self):
        raise TypeError(
            "ShardedHook can't be copied or pickled: it owns connections and threads; keep its "
            "state_dict() instead"
        )

    def attach(self, model: torch.nn.Module, covered: Covered) -> None:
        """Takes the all-reduce of every group over, and looks at the model after each forward pass:
        whether the groups are still all of it."""
        for group in self._groups:
            group.take_over(AllReduce(group, self, self.all_reduce))
        self._covered = covered
        self._handle = model.register_forward_hook(torch.compiler.disable(self._after_forward))

    def _after_forward(self, _model: torch.nn.Module, _inputs, _outputs) -> None:
        if not torch.is_grad_enabled():
            return
        try:
            self._covered.check()
        except DeltawireError as cause:
            self._give_up(cause)
            self._leave()

    def all_reduce(self, group: Group, gradient: torch.Tensor) -> None:
        """torch's hook of a group: its gradient, flat, becomes the mean over the replicas, in
        place, now or by the end of the backward pass. Never raises: that would leave the other
        ranks in torch's next collective."""
        try:
            if not group.all_reduces:
                group.keep(gradient)
                return
            self._open_step()
            group.add_kept(gradient)
            done = self._exchange(group, gradient)
            if group.later_steps_look_at():
                done.result()
                if group.sums:
                    gradient *= self.world_size
        except Exception as cause:
            self._give_up(cause)
            self._raise_at_end()

    def _open_step(self) -> None:
        first = not self._is_open
        self._raise_at_end()
        if first:
            self._scale = self._rules.loss_scale.now()

    def _raise_at_end(self) -> None:
        # Each time: the pass may be another than the one that opened the step, which was cut short.
        after_backward(self._end_step)
        self._is_open = True

    def _exchange(self, group: Group, gradient: torch.Tensor) -> concurrent.futures.Future:
        """Hands a group's gradient over; see `_submit`."""
        if gradient.dtype not in arguments.DTYPES or gradient.device.type != "cpu":
            raise make_error(
                "UnsupportedDType",
                f"a gradient is reduced as {gradient.dtype} on {gradient.device}; deltawire "
                "exchanges float32, bfloat16 and float16 on the CPU",
                self._number,
            )
        tensors, source = group.tensors_in(gradient), self._rules.source
        if source is None:
            return self._submit(tensors, gradient)
        shards = [(shard.name, shard.parameter) for shard in group.trained]
        memory, addresses = source.of_tensors(id(group), shards)
        tensors = [(*at, address) for at, address in zip(tensors, addresses, strict=True)]
        return self._submit(tensors, gradient, over=lambda: source.give_back(id(group), memory))

    def _submit(
        self,
        tensors: list[tuple],
        memory: torch.Tensor | None,
        last: bool = False,
        over: Callable[[], None] = lambda: None,
    ) -> concurrent.futures.Future:
        """Hands a bucket to the communication thread, which calls `over` after it; the Future's
        value is whether it is finite, None after an error."""
        if not self._pending:
            self._log_summary()
        step = _core.Step(self._step, len(self._pending), last, self._scale, timed=True)
        done = concurrent.futures.Future()
        history, replicas = self._history, self.replicas
        history.ready(tuple(tensor[0] for tensor in tensors))

        def complete(error, report, _stays=memory):
            finite = None
            try:
                over()
                if error is not None:
                    error = among(replicas, error)
                if history.end(error, report, last) is None:
                    finite = report.finite
            finally:  # a Future that nobody completes is a wait without a deadline
                done.set_result(finite)

        self._session.submit(tensors, step, self._rules.timeout_ms, complete)
        self._pending.append(done)
        return done

    def _end_step(self) -> None:
        """After the backward pass, and torch's own work after it: all ranks end the step alike."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            results = [done.result() for done in self._pending]  # of all, whatever they are
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
            # Rows that are finite are taken back, too, where others of the step aren't.
            flag = torch.tensor([0.0 if finite else float("nan")])
            tensors = [(_END_OF_STEP, flag.data_ptr(), (1,))]
        self._submit(tensors, flag, last=True).result()

    def _leave(self) -> None:
        """Raises the first error, on every rank of the model."""
        error = self.last_error
        self._session.abort(str(error))
        if self._agreement is not None:
            self._agreement.abort(str(error))
        raise error

    def interrupted(self) -> None:
        """Ends the exchange on every rank because of Ctrl-C here."""
        super().interrupted()
        if self._agreement is not None:
            self._agreement.abort(f"interrupted on {self._who}")

    @property
    def _who(self) -> str:
        return f"global rank {self._number}"

    def _tell(self, cause: BaseException) -> None:
        """So that one that dies of another's end, in a collective of torch's own, says of whose."""
        if self._agreement is None:
            super()._tell(cause)
            return
        first = self._agreement.failure() if self.last_error is None else None
        if first is not None:
            self._history.fail(first)
        reason = gave_up(self._who, first or cause)
        self._session.abort(reason)
        self._agreement.abort(reason)

    def close(self) -> None:
        """Joins the communication threads and says goodbye to the other ranks; idempotent. Done at
        exit in any case. Backward passes that reduce gradients raise from then on; the model may be
        registered again."""
        super().close()
        self._handle.remove()
        if self._agreement is not None:
            self._agreement.close()

    def explain(self) -> Explanation:
        """What each parameter's rows here get in the next step, and what they took in the last: a
        table as text. Call between steps; DeltawireError ("State") within one.
        """
        shards = [shard for group in self._groups for shard in group.shards]
        tensors = [(shard.name, shard.shape, shard.dtype_name) for shard in shards]
        return self._explain(tensors, self._step)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep of this rank; every rank saves its own. Call between steps,
        or after a failure: then it is as after the last step that counts, and with revert="fold"
        has the failed step's gradients besides.

        The hook is a `Stateful` of torch.distributed.checkpoint: save({"model": ..., "hook": hook})
        keeps what all ranks have. By global rank, `residuals` has a uint8 tensor, and `ranges` of
        which rows it is, (dimension, first, end) by parameter's name; the rest is alike on all.
        """
        state = self._state(steps=self._steps_that_count())
        del state["rank"]  # among the replicas: others have the same
        state["residuals"] = kept_by(self._number, state["residuals"])
        state["ranges"] = kept_by(self._number, self._ranges())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave, on every rank or on none. Call between steps. It may
        come of a model whose modules were wrapped otherwise, in other groups or another order.

        Raises InvalidArgumentError (a ValueError) where the state is of another rank, number of
        replicas, spec or version, or of other rows; DeltawireError where its bytes are damaged.
        Then nothing is changed.
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
            raise make_error(
                "InvalidArgument",
                f"the state is of other parameters than this model's, {odd} for instance; load the "
                "state of the same model",
            )
        for name, rows in ours.items():
            found = theirs[name] if theirs[name] is None else tuple(theirs[name])
            if found != rows:
                raise make_error(
                    "InvalidArgument",
                    f"the state has rows {found} (dimension, first, end) of '{name}', but this "
                    f"rank has {rows}; load the state of the same job and rank, or start without",
                )
