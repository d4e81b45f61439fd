"""Rounds of local steps that go on when ranks die, leave and join."""

import io

import numpy as np
import torch

from deltawire.errors import make_error
from deltawire.leaving import ClosesAtEnd
from deltawire.policy import Policy
from deltawire.session import Session, take_step
from deltawire.torch.core import arguments
from deltawire.torch.core.staging import is_forced
from deltawire.torch.local.outer import OuterFactory, factory_of
from deltawire.torch.local.weights import Weights

_ONE_BUCKET = 1 << 62  # bytes: as few as the model has devices; a step exchanges all at once
_COUNTS = "(members with a change)"  # a tensor of one element, and no parameter's name


def _on_host(block: torch.Tensor) -> torch.Tensor:
    """The block, or a copy of one on a GPU."""
    return block.to("cpu", copy=True) if is_forced() or block.device.type != "cpu" else block


class ElasticLocalSteps(ClosesAtEnd):
    """Local steps over an elastic `deltawire.Session`, without a process group::

        trainer = deltawire.torch.ElasticLocalSteps(
            model, optimizer, "3lc", steps=100, rank=rank, world_size=4, address="10.0.0.1:29600"
        )
        while trainer.round < 1000:
            optimizer.zero_grad()
            loss_of(model(next(batches))).backward()
            trainer.step()

    A round follows `steps` local steps, as with `LocalSteps`: the mean change of the members'
    weights is added to the common weights, or stepped by the outer optimizer. When a rank dies, the
    round is done again by those who remain, within `step`.

    A process that joins (without rank= and world_size=) gets the common weights, the outer
    optimizer's state, buffers and frozen parameters. It takes part in the open round without a
    change, which does not count in the mean, and trains from the next one on. Its inner optimizer
    begins anew.

    Args:
        model: the bare module, as for `LocalSteps`. Changes of CUDA parameters are copied to the
            CPU and back within `exchange`, which waits for both. All ranks that the session begins
            with must have equal weights, by a seed or a checkpoint: the first round compares them.
        optimizer: any torch.optim.Optimizer whose parameters are the model's.
        reducer: codec, pattern and codec, or policy, as for `deltawire.Session`.
        steps: local steps a round, 1 or more.
        outer: as for `LocalSteps`.
        session: what `deltawire.Session` takes besides: rank, world_size, address, token, at_least,
            timeout and so on. arrival_timeout: how much longer one rank's local steps may take than
            another's.

    Raises:
        DTypeError (a TypeError), InvalidArgumentError (a ValueError): as `LocalSteps`.
        DeltawireError: as `deltawire.Session`.

    Attributes:
        session: the session, with members(), events and metrics().
        outer: the outer torch optimizer, or None.
        local_steps: steps since the last round.

    Thread rule: one thread at a time.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        reducer: Policy,
        *,
        steps: int,
        outer: str | OuterFactory | None = None,
        **session: object,
    ) -> None:
        arguments.check_positive("steps", steps)
        if session.keys() & {"elastic", "state"}:
            raise make_error("InvalidArgument", "elastic= and state= are ElasticLocalSteps' own")
        self._model, self._optimizer, self._steps = model, optimizer, steps
        self._weights = Weights(model, _ONE_BUCKET, 1, factory_of(outer))
        self._weights.start_from_here(compared=True)
        self.outer = self._weights.outer.optimizer if self._weights.outer else None
        self.local_steps = 0
        self.session = Session(reducer, elastic=True, state=self._state, **session)
        if self.session.joined_state is not None:
            self._load(self.session.joined_state)
            self._exchange(counts=False)

    @property
    def round(self) -> int:
        """Finished rounds, those before this process joined included."""
        return self.session.steps

    def step(self) -> None:
        """Steps the optimizer; every `steps` calls it exchanges. Raises DeltawireError: see
        `exchange`."""
        self._optimizer.step()
        self.local_steps += 1
        if self.local_steps >= self._steps:
            self.exchange()

    def exchange(self) -> None:
        """Ends the round now. After it the weights are bit-equal on all members.

        Raises:
            DeltawireError: as `Session.all_reduce`. The parameters keep their local values then.
        """
        self._exchange(counts=True)

    def _exchange(self, counts: bool) -> None:
        self._weights.check_model()
        blocks, hosts, tensors = [], [], []
        for bucket in range(self._weights.changes.bucket_count(0)):
            block = self._weights.changes_of(0, bucket)
            host = _on_host(block)
            blocks.append(block)
            hosts.append(host)
            for name, address, shape in self._weights.changes.at(0, bucket, host):
                tensors.append((name, address, list(shape)))
        share = np.full(1, counts, np.float32)
        tensors.append((_COUNTS, share.ctypes.data, [1]))
        take_step(self.session, tensors, self._weights.agreed(0))
        members = self.session.world_size
        with_change = max(1, round(float(share[0]) * members))
        for block, host in zip(blocks, hosts, strict=True):
            if with_change < members:
                host.mul_(members / with_change)
            if host is not block:
                block.copy_(host)
        self._weights.apply_means(0)
        self.local_steps = 0

    def close(self) -> None:
        """Leaves the session, see `Session.close`."""
        self.session.close()

    # Within a round the common weights are those of the last one, on all members.
    def _state(self) -> dict[str, np.ndarray]:
        kept = self._weights.state()
        own = set(self._weights.names)
        rest = {k: v for k, v in self._model.state_dict().items() if k not in own}
        file = io.BytesIO()
        state = {"reference": kept["reference"], "outer": kept.get("outer"), "rest": rest}
        torch.save(state, file)
        return {"trainer": np.frombuffer(file.getvalue(), np.uint8)}

    def _load(self, arrays: dict[str, np.ndarray]) -> None:
        file = io.BytesIO(arrays["trainer"].tobytes())
        given = torch.load(file, weights_only=True)
        state = self._weights.state()  # has the dtypes
        state["reference"] = given["reference"]
        for name, value in given["reference"].items():
            if name in state["parameters"]:
                state["parameters"][name] = value.to(state["parameters"][name].dtype)
            if name in state["origins"]:
                state["origins"][name] = state["parameters"][name].float()
        if (given["outer"] is None) != (self.outer is None):
            raise make_error("Mismatch", "the other members have outer=, or this one alone has it")
        if self.outer is not None:
            state["outer"] = given["outer"]
        self._weights.check_state(state)
        self._weights.load(state)
        missing, unexpected = self._model.load_state_dict(given["rest"], strict=False)
        if unexpected or set(missing) - set(self._weights.names):
            raise make_error("Mismatch", "the other members have another model")
