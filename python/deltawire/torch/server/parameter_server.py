"""A parameter server as in 3LC: some ranks own and step the model, the others compute gradients.

H. Lim, D. Andersen, M. Kaminsky, "3LC: Lightweight and Effective Traffic Compression for
Distributed Machine Learning", MLSys 2019, sections 2 and 3.
"""

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
import torch.distributed as dist
from typing_extensions import Unpack

from deltawire import _core
from deltawire.errors import wrong_state
from deltawire.session.leaving import exception_under_way
from deltawire.session.terms import Terms
from deltawire.torch.core import arguments, bootstrap
from deltawire.torch.core.checkpoint import collective_load
from deltawire.torch.core.module_parameters import layout, layout_digest, share_model
from deltawire.torch.core.optimizer_rules import momentum_choice
from deltawire.torch.core.optimizer_rules.momentum_advice import MomentumWarning
from deltawire.torch.server import optimizer as served_optimizer
from deltawire.torch.server.memory import ServedMemory
from deltawire.torch.server.metrics import Drops, of_server, of_worker
from deltawire.torch.server.model import ServedModel
from deltawire.torch.server.rank import ServedRank
from deltawire.torch.server.serving import Serving
from deltawire.torch.server.settings import (
    check_overlap,
    codecs_of,
    lasting_settings,
    options_of,
)
from deltawire.torch.server.state import Snapshots, load, state_of
from deltawire.torch.server.worker import ServedWorker

logger = logging.getLogger("deltawire")


class ParameterServer(ServedRank):
    """One rank of training with parameter servers; made on every rank at the same time::

        server = deltawire.torch.ParameterServer(model, optimizer, "3lc:s=1.75", servers=2)
        if server.serves:  # ranks 0 and 1
            server.serve()  # until the workers close
        else:
            for x, y in batches:
                optimizer.zero_grad()
                loss_of(model(x), y).backward()
                server.step()  # instead of optimizer.step()
        server.close()

    The first ranks, the servers, own the model, divided by bytes, and step it with the optimizer's
    settings; its state exists once. The other ranks, the workers, compute gradients. Each gradient
    is compressed and sent to its servers as soon as backward() has computed it. The servers average
    gradients, step, and send the changes, compressed once for all workers. After `step` a worker's
    parameters equal the servers', bit for bit on all workers (with `staleness`, on workers with as
    many steps).

    Args:
        model: the bare module, without DistributedDataParallel or anything else that exchanges by
            itself. Parameters that require gradients must be float32, on the CPU or on CUDA devices
            (which may differ between ranks), and their set must not change. At the start all
            parameters and buffers are set to rank 0's. Afterwards each worker has its own buffers
            (BatchNorm statistics), as with LocalSteps; servers have none. Frozen parameters keep
            their values.
        optimizer: a new torch.optim.SGD, Adagrad, RMSprop, Adam or AdamW, with one setting for all
            parameters, which are the model's that require gradients. Servers step as it would; it
            is never stepped itself, and its step() raises on workers.
        spec: the codec of both directions, e.g. "3lc:s=1.75", or rules (`spec_of`). Equal on all
            ranks, like the following arguments up to `seed`.
        servers: number of servers, ranks 0 ... servers - 1. At least one rank must remain a worker.
        backup: number of workers that a step doesn't wait for: it uses the first gradients that
            arrive, from all workers but this many. A late gradient is not lost: it is sent with the
            worker's next.
        staleness: how many steps a worker may be ahead of the slowest. Its parameters then lack the
            changes of at most that many steps. 0: workers are synchronous.
        on_worker_loss: "end": a worker that is killed, fails, or is silent for `timeout` ends the
            run; the error names it. "drop": training continues with the mean of the remaining
            gradients; the worker's residuals are lost. If it is alive, its next call raises.
        min_workers: with "drop": the run ends if fewer are left.
        push, pull: codecs for one direction: of gradients, and of the servers' changes.
        min_elements: parameters below this many elements travel uncompressed.
        seed: for codecs that draw random numbers.
        overlap: what a worker overlaps. "push" (the default): gradients are sent during backward(),
            and `step` waits for the parameters. "both": each layer waits for its parameters before
            its forward pass, so that they arrive while other layers compute. Only the model's
            layers may then read parameters: call `wait` before anything else does (state_dict()
            calls it). Layers must use their parameters in their own forward pass; parameters for
            which the first step shows otherwise are waited for in `step`. Not with `backup` or
            `staleness`. "none": gradients are sent in `step`, for gradients that are clipped after
            backward().
        momentum: "rate": parameters whose codec of gradients the optimizer does not go with are
            stepped by the rule that there is for the two, as with `register`, and both directions'
            codecs are as this needs them; for "3lc" and AdamW the mean squares of gradients' rows
            and columns travel beside them. "optimizer": all as the optimizer does.
        snapshot: a folder, local or shared. Every rank writes its state there; if all servers have
            snapshots of a step, training resumes from the newest such step
            (docs/guides/parameter-server.md), also with other workers or another number of them.
        every: steps between two snapshots.
        timeout: seconds that servers wait for workers' gradients, and workers for servers, before
            they give up and name the rank they wait for. Make it longer than the longest pause of a
            worker (an evaluation). A rank whose process has ended is named at once.
        connection: `interface`, `port`, `token`, `encryption`, `link` and `connect_timeout`, as
            for `register`; but with encryption="required" rank 0's weights are not sent to the
            others, since the process group would carry them in the clear: all ranks must begin with
            equal ones.
        group: the process group. Default: the world.

    Raises:
        DTypeError (a TypeError): no model, no optimizer, or one that can't be served.
        InvalidArgumentError (a ValueError): bad spec or setting, no process group, optimizer
            settings that servers don't support, parameters that only the optimizer or only the
            model has.
        DeltawireError: a rank with other settings or another model ("Mismatch"), a rank that could
            not take part ("Aborted"), ranks that don't connect ("Timeout"); alike on every rank.

    Attributes:
        serves: whether this rank is a server.
        rank, world_size, servers, group: this rank's place.
        resumed_at: the step of the snapshot from which training resumes; 0: it starts.
        optimizer_spec: the servers' optimizer, e.g. "momentum:lr=0.1,momentum=0.9,dampening=0,...".

    A `MomentumWarning` on rank 0 says where the optimizer doesn't go with the codecs of gradients
    and no rule is applied, and what to give instead (docs/reference/algorithms.md, "Codecs and
    optimizers").

    The first error ends training on all ranks with a typed error that names the suspect: a killed
    rank at once, a frozen one after `timeout`. A worker's parameters may then be from two steps.
    Only `close` may be called afterwards.

    It can't be copied or pickled (TypeError). A copy of the model, or a saved one, is a plain
    module.

    Memory: on a server its part of the model twice, the gradient, the optimizer's state and a
    residual; on a worker a residual of the model's size. Parameters on a CUDA device also have
    pinned memory of their size, for gradients and changes. Thread rule: one thread;
    metrics and last_error: any.
    """

    resumed_at = 0

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        spec: str = "3lc",
        *,
        servers: int = 1,
        backup: int = 0,
        staleness: int = 0,
        on_worker_loss: Literal["end", "drop"] = "end",
        min_workers: int = 1,
        push: str | None = None,
        pull: str | None = None,
        min_elements: int = 256,
        seed: int = 0,
        overlap: Literal["push", "both", "none"] = "push",
        momentum: Literal["rate", "optimizer"] = "rate",
        snapshot: str | os.PathLike[str] | None = None,
        every: int = 100,
        timeout: float = 300.0,
        group: dist.ProcessGroup | None = None,
        **connection: Unpack[arguments.ConnectionKeywords],
    ) -> None:
        reached = arguments.Connection.of("ParameterServer", connection)
        self.group = bootstrap.given_or_world(group)
        with bootstrap.Meeting(self.group) as meeting:
            reached.check_by_tcp("ParameterServer")
            self.rank, self.world_size = meeting.place
            ways = {"push": push, "pull": pull}
            codecs = {way: codecs_of(spec if own is None else own) for way, own in ways.items()}
            self._model = ServedModel(model)
            self._optimizer = optimizer = arguments.bare_optimizer(optimizer, "ParameterServer")
            self.optimizer_spec = served_optimizer.spec_of(optimizer, self._model.names_by_id)
            check_overlap(overlap, backup, staleness)
            momentum_choice.check_momentum(momentum)
            counts = {"servers": servers, "backup": backup, "staleness": staleness, "seed": seed}
            counts |= {"min_workers": min_workers, "min_elements": min_elements}
            rules_of = self.optimizer_spec if momentum == momentum_choice.AS_RATE else ""
            self._options = options_of(codecs, counts, on_worker_loss, rules_of)
            sent = self._options.fitted_to(self.world_size)
            self.servers = servers
            self._timeout_ms = arguments.timeout_in_ms(timeout)
            lasting = lasting_settings(sent, counts, self.optimizer_spec)
            self._snapshots = self._snapshots_in(snapshot, every, lasting)
            losses = {"on_worker_loss": on_worker_loss, "momentum": momentum}
            others = {"optimizer": self.optimizer_spec, "every": snapshot and every}
            settings = lasting | counts | losses | others
            meeting.agree_on(Terms("ParameterServer", layout(model), **settings))
            meeting.listen(reached)
        super().__init__(meeting.join(), self.rank)
        self.serves = self.rank < servers
        self._server: Serving | None = None
        self._worker: ServedWorker | None = None
        self._last: dict[str, Any] = {}  # the metrics, once all is closed
        if self.rank == 0:
            self._tell(sent, momentum)
        with self._aborting_on_error():
            share_model(model, self.group, meeting.encryption, on_any_device=True)
            self._take_part(overlap)

    def _tell(self, sent: _core.ServerOptions, momentum: str) -> None:
        way = (
            "as it is"
            if momentum == momentum_choice.IN_OPTIMIZER
            else "by the rules for these codecs"
        )
        logger.info(
            "gradients are sent as '%s', changes as '%s'; servers step %s, %s",
            *(sent.push, sent.pull, self.optimizer_spec, way),
        )
        for text in _core.server_warnings(self.optimizer_spec, self._options):
            warnings.warn(text, MomentumWarning, stacklevel=3)

    def _snapshots_in(
        self, folder: str | os.PathLike[str] | None, every: int, lasting: dict[str, object]
    ) -> Snapshots | None:
        arguments.check_positive("every", every)
        arguments.check_kind("snapshot", folder, (str, os.PathLike), "a folder's path")
        if folder is None:
            return None
        module = self._model.module
        settings = lasting | {"model": layout_digest(module)}
        text = " ".join(f"{name}={value}" for name, value in settings.items())
        buffers = list(module.buffers())
        return Snapshots(folder, every, (self.rank, self.servers), text, buffers)

    def _take_part(self, overlap: str) -> None:
        memory = ServedMemory(self._model.names, self._model.parameters, self.rank)
        tensors = self._model.tensors(memory)
        self._step_guard = None
        if self.serves:
            core = _core.ParameterServer(self._link, tensors, self.optimizer_spec, self._options)
            drops = Drops(self.rank, self.world_size - self.servers)
            self._server = Serving(core, self._optimizer, drops, self._timeout_ms, self._snap)
        else:
            core = _core.ParameterWorker(self._link, tensors, self._options)
            self._worker = ServedWorker(
                core,
                self._model,
                memory,
                self._timeout_ms,
                overlap,
                self._aborting_on_error,
                self._snap,
            )
            self._step_guard = self._optimizer.register_step_pre_hook(served_optimizer.refuse_step)
        if self._snapshots is not None:
            self.resumed_at = self._snapshots.go_on(core, self.group)

    @property
    def _core(self) -> _core.ParameterServer | _core.ParameterWorker:
        return (self._server or self._worker).core

    def _snap(self) -> None:
        if self._snapshots is not None:
            self._snapshots.take(self._core, self._catch_up)

    def _catch_up(self) -> None:
        if self._worker is not None:
            self._worker.catch_up()

    def serve(self, after_step: Callable[[], object] | None = None) -> int:
        """Serves until the workers have closed. Only for servers. Returns the number of steps.

        Args:
            after_step: called after every step, for example the step() of a torch learning-rate
                scheduler of the optimizer. The optimizer's rate is then that of the next step;
                it must be the same on every server. Workers need no scheduler. When training
                resumes from a snapshot, it is first called once for each earlier step.

        Raises DeltawireError as described for the class, "State" on a worker or when closed.
        """
        self._check_open()
        if self._server is None:
            raise wrong_state(f"rank {self.rank} is a worker: it calls step(), not serve()")
        with self._aborting_on_error():
            self._server.serve(after_step, self.resumed_at)
        return self._server.core.counts.steps

    def start(self) -> None:
        """Fetches the model, on a worker; otherwise the first forward pass does."""
        with self._working() as worker:
            worker.open()

    def step(self) -> bool:
        """Ends a step: sends the gradients that were not sent yet (zeros for a parameter without
        one), and sets the parameters to the servers'. Gradients are kept, as with optimizer.step().

        Returns:
            False if the servers have closed without this step, because other workers have: the loop
            may end, as further steps change nothing. With overlap="both" this is known a step
            later.

        Raises DeltawireError as described for the class; "State" on a server, when closed, or if
        the optimizer's learning rate was changed on this worker.
        """
        with self._working() as worker:
            if served_optimizer.settings_now(self._optimizer) != [self.optimizer_spec]:
                raise wrong_state(
                    "the optimizer's settings have changed on a worker, and servers step the "
                    "model: a schedule belongs into serve(after_step=scheduler.step)"
                )
            return worker.step()

    def wait(self) -> None:
        """Waits until a worker's parameters are complete: with overlap="both", call it before
        anything but the model's layers reads them. Raises like `step`."""
        with self._working() as worker:
            worker.wait()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward passes accumulate gradients without sending them: for all passes of a
        step but the last, as with DistributedDataParallel. Gradients that the last pass doesn't
        reach are sent in `step`."""
        with self._working() as worker:
            worker.sync = False
        try:
            yield
        finally:
            worker.sync = True

    @property
    def steps(self) -> int:
        """Steps in a worker's parameters, or made by a server."""
        return self.metrics()["step"]

    @property
    def ended(self) -> bool:
        """Whether the servers have closed, so that only `close` is left to do."""
        if self.closed:
            return True
        return self._server.is_over if self._server else self._worker.core.has_ended

    def metrics(self) -> dict[str, Any]:
        """Totals of this rank; after `close` the last ones.

        - step: steps in the parameters; steps: those that this rank has completed;
        - push_bytes, pull_bytes: messages sent and received by a worker, or received and sent by a
          server (every copy), with their headers; pull_bytes includes the initial model;
        - push_ratio, pull_ratio: on a worker, the compression relative to 4 bytes an element,
          without the initial model; None before the first step;
        - encodes, encodes_per_step: messages that a server has compressed: one for each part and
          step, however many workers receive it;
        - dropped: on a server, the workers that were dropped (`metrics.Drops`): `rank`, `step`,
          `time`, `code` and `why` of each;
        - late_pushes: parts of gradients that came too late for their step and are sent with a
          later one; skipped_steps: steps that the servers made meanwhile;
        - push_ms, wait_ms: a worker's time for compressing gradients, and for waiting for
          parameters and storing them;
        - traffic_bytes_sent, traffic_bytes_received: on the links, with transport headers;
        - snapshot_error, with `snapshot`: why the newest could not be written, or None.
        """
        if self._server is not None:
            self._last = of_server(self._server.core, self._server.drops, self._link)
        elif self._worker is not None:
            self._last = of_worker(self._worker, self._model.elements, self._link)
        if self._snapshots is not None:
            self._last["snapshot_error"] = self._snapshots.error
        return dict(self._last)

    def state_dict(self) -> dict[str, Any]:
        """This rank's state for a checkpoint, besides those of the module and of a scheduler. Call
        it on a server between steps (in `serve`'s after_step, or after `serve`), on a worker after
        `step`. The states of all ranks belong together."""
        self._check_open()
        if self._worker is not None:
            self.wait()
            self._catch_up()
        return state_of(self._core, self._place())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned, on every rank or on none, before `serve` and the
        first step; a collective on the process group. Workers get the parameters from the servers.

        Raises InvalidArgumentError (a ValueError) for a state of another rank, world size or spec;
        DeltawireError for damaged bytes, if another rank could not load ("Aborted"), or if the
        ranks' states are from different steps ("Mismatch"). Nothing is changed then.
        """
        self._check_open()
        collective_load(self.group, self._core, lambda: load(self._core, state, self._place()))

    def _place(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "servers": self.servers,
            "optimizer": _core.NamedParameters(self.optimizer_spec, "optimizer").name,
        }

    def close(self) -> None:
        """Ends this rank's part; idempotent. A worker announces that it makes no more steps; the
        servers end when too few workers are left. After an error, during an exception, or before a
        server has served, the exchange is aborted on every rank. Raises the error of a worker's
        goodbye."""
        if not self.closed and (cause := exception_under_way()) is not None:
            self._give_up(cause)
        try:
            if self._worker is not None and self.last_error is None:
                with self._aborting_on_error():
                    self._worker.close()
        finally:
            self._part()

    def _part(self) -> None:
        self.metrics()
        if self._worker is not None:
            self._worker.detach()
            self._step_guard.remove()
        self._server = self._worker = None  # aborts what is left
        super()._part()

    @contextlib.contextmanager
    def _working(self) -> Iterator[ServedWorker]:
        self._check_open()
        if self._worker is None:
            raise wrong_state(f"rank {self.rank} is a server: it calls serve() alone")
        with self._aborting_on_error():
            yield self._worker
