"""Ranks that own the model and step it, and ranks that compute gradients: 3LC's parameter server.

H. Lim, D. Andersen, M. Kaminsky, "3LC: Lightweight and Effective Traffic Compression for
Distributed Machine Learning", MLSys 2019, sections 2 and 3.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import make_error
from deltawire.leaving import exception_under_way
from deltawire.policy import Policy
from deltawire.terms import Terms
from deltawire.torch import arguments, bootstrap, served_optimizer
from deltawire.torch.joint_load import load_on_all
from deltawire.torch.served_drops import Drops
from deltawire.torch.served_metrics import of_server, of_worker
from deltawire.torch.served_model import ServedModel
from deltawire.torch.served_rank import ServedRank
from deltawire.torch.served_settings import (
    check_counts,
    check_overlap,
    checked_servers,
    codecs_of,
    drops_workers,
    lasting_settings,
    snapshot_text,
)
from deltawire.torch.served_state import Snapshots, catch_up, load, state_of
from deltawire.torch.served_worker import ServedWorker
from deltawire.torch.weights import broadcast_model, layout


class ParameterServer(ServedRank):
    """A rank's part in training with parameter servers; made on every rank at the same time::

        server = deltawire.torch.ParameterServer(model, optimizer, "3lc:s=1.75", servers=2)
        if server.serves:  # ranks 0 and 1
            server.serve()  # until the workers close
        else:
            for x, y in batches:
                optimizer.zero_grad()
                loss_of(model(x), y).backward()
                server.step()  # in the place of optimizer.step()
        server.close()

    The first ranks own the model, cut and dealt out by bytes, and step it with the optimizer's
    settings, whose state is there once. The others compute gradients: each one leaves for its
    servers, compressed, as soon as backward() has it; the servers average them, step, and send what
    has changed, compressed once for all workers. After `step` a worker's parameters are what the
    servers say, bit-equal on all of them (with `staleness`, on those that have as many steps).

    Args:
        model: the bare module; no DistributedDataParallel and nothing else that exchanges by
            itself. Its parameters that require gradients are float32 on the CPU, and which they are
            stays as it is now. At the start all parameters and buffers become rank 0's. From then
            on buffers (statistics of BatchNorm) are each worker's own, as with LocalSteps; servers
            compute nothing and have none. Frozen parameters stay what they are.
        optimizer: new, torch.optim.SGD, Adagrad, RMSprop, Adam or AdamW, with one setting for all
            parameters, which are those of the model that require gradients. Servers step as it
            would; it is never stepped itself, and on workers its step() raises.
        spec: the codec of both directions, e.g. "3lc:s=1.75", or rules (`spec_of`); equal on all
            ranks, as all that follows up to `seed`.
        servers: how many ranks serve: 0 ... servers - 1. At least one rank is left to work.
        backup: workers that no step waits for: it counts the first gradients, of all workers but
            so many. A late one is not lost: it leaves with its worker's next.
        staleness: how many steps a worker may be ahead of the slowest: its parameters then lack the
            last changes, at most so many. 0: all are in step.
        on_worker_loss: "end": a worker that is killed, fails, or is silent for `timeout` ends the
            run, named. "drop": the others go on, with the mean of the gradients that are left;
            what waited in it is lost. Where it lives, its next call raises, and says that.
        min_workers: with "drop": where fewer are left, that ends the run.
        push, pull: other codecs for one direction: of gradients, of what the servers change.
        min_elements: parameters below this many elements travel uncompressed.
        seed: of codecs that draw by chance.
        overlap: of a worker. "push" (the default): gradients leave while backward() goes on, and
            `step` waits for the parameters. "both": each layer waits for its own before its forward
            pass, so that they come while others compute. Then parameters are whole for the model's
            layers alone: call `wait` before anything else reads them (state_dict() does). It takes
            layers whose parameters are used by their own forward pass; where others are found in
            the first step, `step` waits for those. Not with `backup` or `staleness`.
            "none": gradients leave in `step`, and it waits: for gradients that are clipped after
            backward().
        snapshot: a folder, of this machine or shared: every rank writes what it needs to go on, and
            where all servers have snapshots of a step, training goes on from the newest such one
            (docs/guides/parameter-server.md). It may go on with other workers, or
            another number of them.
        every: steps between two snapshots, with `snapshot`.
        timeout: seconds that a server waits for the workers' gradients, and a worker for the
            servers, before it gives up and names whom it waits for: longer than the longest pause
            of a worker (an evaluation). A rank whose process has ended is named at once.
        connect_timeout, interface, port, token, link: as for `register`.
        group: the process group, default: the world.

    Raises:
        DTypeError (a TypeError): no model, no optimizer, or one that can't be served.
        InvalidArgumentError (a ValueError): bad spec or setting, no process group, an optimizer
            with settings that servers don't have, parameters that it or the model lacks.
        DeltawireError: a rank with other settings or another model ("Mismatch"), a rank that could
            not take part ("Aborted"), ranks that don't connect ("Timeout"); alike on every rank.

    Attributes:
        serves: whether this rank is a server.
        rank, world_size, servers, group: the place of this rank.
        resumed_at: the step of the snapshot that training goes on from; 0: it begins.
        optimizer_spec: as servers step, e.g. "momentum:lr=0.1,momentum=0.9,dampening=0,...".

    The first error ends training on all ranks, typed, and names the suspect: a rank that was killed
    at once, one that is frozen by `timeout`. A worker's parameters may then be of two steps. Only
    `close` is left to do.

    It can't be copied or pickled (TypeError). A copy of the model, or a saved one, is a plain
    module.

    Memory: a server's parts twice, their gradient, the optimizer's state and a residual; a worker's
    residual, the size of the model. Thread rule: one thread; metrics and last_error: any.
    """

    resumed_at = 0
    _has_served = False

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        spec: Policy = "3lc",
        *,
        servers: int = 1,
        backup: int = 0,
        staleness: int = 0,
        on_worker_loss: str = "end",
        min_workers: int = 1,
        push: Policy | None = None,
        pull: Policy | None = None,
        min_elements: int = 256,
        seed: int = 0,
        overlap: str = "push",
        snapshot: str | os.PathLike | None = None,
        every: int = 100,
        timeout: float = 300.0,
        connect_timeout: float = 60.0,
        interface: str | None = None,
        port: int | str | None = None,
        token: str | bytes | None = None,
        link: _core.LinkShape | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.group = bootstrap.given_or_world(group)
        with bootstrap.Meeting(self.group) as meeting:
            self.rank, self.world_size = meeting.place
            self.servers = checked_servers(servers, backup, self.world_size)
            check_overlap(overlap, backup, staleness)
            codecs = [codecs_of(push or spec), codecs_of(pull or spec)]
            self._model = ServedModel(model)
            arguments.check_is_optimizer(optimizer, "ParameterServer")
            self.optimizer_spec = served_optimizer.spec_of(optimizer, self._model.names_by_id)
            self._optimizer = optimizer
            arguments.check_link(link)
            check_counts(min_elements=min_elements, seed=seed, staleness=staleness)
            drops = drops_workers(on_worker_loss, min_workers, self.world_size - servers)
            lasting = lasting_settings(codecs, servers, min_elements, self.optimizer_spec)
            self._snapshots = self._snapshots_in(snapshot, every, lasting)
            self._timeout_ms = arguments.timeout_in_ms(timeout)
            self._options = _core.ServerOptions(
                servers, backup, *codecs, min_elements, seed, staleness, drops, min_workers
            )
            losses = {"on_worker_loss": on_worker_loss, "min_workers": min_workers}
            counts = {"backup": backup, "staleness": staleness, "seed": seed}
            others = {"optimizer": self.optimizer_spec, "every": snapshot and every}
            settings = lasting | losses | counts | others
            meeting.agree_on(Terms("ParameterServer", layout(model), **settings))
            meeting.listen(interface, port, connect_timeout, token)
        super().__init__(meeting.join(link), self.rank)
        self.serves = self.rank < servers
        self._server: _core.ParameterServer | None = None
        self._worker: ServedWorker | None = None
        self._last: dict[str, Any] = {}  # the metrics, once all is closed
        with self._all_end_on_error():
            broadcast_model(model, self.group)
            self._take_part(overlap)

    def _snapshots_in(
        self, folder: str | os.PathLike | None, every: int, lasting: dict[str, object]
    ) -> Snapshots | None:
        if folder is None:
            return None
        text = snapshot_text(lasting, self._model.module)
        buffers = list(self._model.module.buffers())
        return Snapshots(folder, every, (self.rank, self.servers), text, buffers)

    def _take_part(self, overlap: str) -> None:
        tensors = self._model.tensors()
        self._step_guard = None
        if self.serves:
            core = self._server = _core.ParameterServer(
                self._link, tensors, self.optimizer_spec, self._options
            )
            self._drops = Drops(core, self.rank, self.world_size - self.servers)
        else:
            core = _core.ParameterWorker(self._link, tensors, self._options)
            self._worker = ServedWorker(
                core, self._model, self._timeout_ms, overlap, self._all_end_on_error, self._snap
            )
            self._step_guard = self._optimizer.register_step_pre_hook(served_optimizer.refuse_step)
        if self._snapshots is not None:
            self.resumed_at = self._snapshots.go_on(core, self.group)

    @property
    def _core(self) -> _core.ParameterServer | _core.ParameterWorker:
        return self._server or self._worker.core

    def _snap(self) -> None:
        if self._snapshots is not None:
            self._snapshots.take(self._core, self._timeout_ms)

    def serve(self, after_step: Callable[[], object] | None = None) -> int:
        """Serves until the workers have closed; on servers alone. Returns the steps made.

        Args:
            after_step: called after every step, e.g. the step() of a torch learning-rate scheduler
                of the optimizer: the rate that the optimizer has then is that of the next step, the
                same on every server. Workers need no scheduler. Where training goes on from a
                snapshot it is called for each of the steps before, first.

        Raises DeltawireError as described for the class, "State" on a worker or when closed.
        """
        self._check_open()
        if self._server is None:
            raise make_error("State", f"rank {self.rank} is a worker: it calls step(), not serve()")
        with self._all_end_on_error():
            for _ in range(self.resumed_at if after_step is not None else 0):
                self._follow(after_step)
            while self._make_step():
                if after_step is not None:
                    self._follow(after_step)
                self._snap()
            self._has_served = True
        return self._server.counts.steps

    def _make_step(self) -> bool:
        try:
            return self._server.step(self._timeout_ms)
        finally:
            self._drops.tell()

    def _follow(self, after_step: Callable[[], object]) -> None:
        """The servers take the rate that the optimizer has after a step."""
        self._optimizer.step()  # without gradients: schedulers ask for it
        after_step()
        self._server.set_learning_rate(served_optimizer.rate_of(self._optimizer))

    def start(self) -> None:
        """Fetches the model from the servers, on a worker; else the first forward pass does."""
        with self._working() as worker:
            worker.open()

    def step(self) -> bool:
        """Ends a step: gradients that have not left leave, parameters become the servers'. Where a
        parameter has no gradient zeros leave. Gradients stay, as with optimizer.step().

        Returns:
            False where the servers have closed without this step, because other workers have: a
            loop may end, and further steps change nothing. With overlap="both" it is known a step
            later.

        Raises DeltawireError as described for the class, "State" on a server or when closed, or
        where the optimizer's learning rate was changed here: the servers have it.
        """
        with self._working() as worker:
            if served_optimizer.settings_now(self._optimizer) != [self.optimizer_spec]:
                raise make_error(
                    "State",
                    "the optimizer's settings have changed on a worker, and servers step the "
                    "model: a schedule belongs into serve(after_step=scheduler.step)",
                )
            return worker.step()

    def wait(self) -> None:
        """Until a worker's parameters are whole: with overlap="both", before anything but the
        model's layers reads them. Raises as `step`."""
        with self._working() as worker:
            worker.wait()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within add to gradients, which don't leave: all of a step but the last,
        as with DistributedDataParallel. Gradients that no later pass completes leave in `step`."""
        with self._working() as worker:
            worker.sync = False
        try:
            yield
        finally:
            worker.sync = True

    @property
    def steps(self) -> int:
        """Steps that a worker's parameters have, or that a server has made."""
        return self.metrics()["step"]

    @property
    def ended(self) -> bool:
        """The servers have closed: what is left to do is `close`."""
        if self._worker is not None and not self.closed:
            return self._worker.core.has_ended
        return self.closed or self._has_served

    def metrics(self) -> dict[str, Any]:
        """Of this rank since it was made; after `close` the last.

        - step: steps that the parameters have; steps: those that this rank has completed;
        - push_bytes, pull_bytes: of messages, sent and received (worker) or received and sent
          (server, every copy), with their headers; pull_bytes has the model at the start, too;
        - push_ratio, pull_ratio: of a worker's steps, how many times smaller than 4 bytes an
          element these are, without the model at the start; None before the first step;
        - encodes, encodes_per_step: messages that a server has compressed: one for each part and
          step, however many workers take it;
        - dropped: of a server, the workers that it has gone on without (`served_drops.Drops`):
          `rank`, `step`, `time`, `code` and `why` of each;
        - late_pushes: parts of gradients that no step counted, for they came too late, and that
          left or leave later; skipped_steps: that the servers made meanwhile;
        - push_ms, wait_ms: a worker's time in compressing gradients, and in waiting for parameters
          and taking them in;
        - traffic_bytes_sent, traffic_bytes_received: by the links, transport headers included;
        - snapshot_error, with `snapshot`: why the newest could not be written; None: it could.
        """
        if self._server is not None:
            self._last = of_server(self._server, self._drops, self._link)
        elif self._worker is not None:
            self._last = of_worker(self._worker, self._model.elements, self._link)
        if self._snapshots is not None:
            self._last["snapshot_error"] = self._snapshots.error
        return dict(self._last)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep of this rank beside the module's and a scheduler's own state,
        on a server between steps (in `serve`'s after_step, or after it), on a worker after `step`:
        `state`, a uint8 tensor, and where it belongs. Those of all ranks belong together."""
        self._check_open()
        if self._worker is not None:
            self.wait()
            catch_up(self._core, self._timeout_ms)
        return state_of(self._core, self._place())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave, on every rank or on none, before `serve` and the first
        step; a collective on the process group. Workers get the parameters from the servers.

        Raises InvalidArgumentError (a ValueError) where the state is of another rank, world size or
        spec, DeltawireError where its bytes are damaged, another rank could not load ("Aborted"),
        or the ranks' states aren't of the same step ("Mismatch"). Then nothing is changed.
        """
        self._check_open()
        load_on_all(self.group, self._core, lambda: load(self._core, state, self._place()))

    def _place(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "servers": self.servers,
            "optimizer": self.optimizer_spec.partition(":")[0],
        }

    def close(self) -> None:
        """A worker says that it has no more steps: servers end when too few are left. Then this
        rank says goodbye; idempotent. After an error, while an exception is on its way, or before a
        server has served, it aborts what is left of the exchange on every rank. Raises what a
        worker's goodbye ended with."""
        if not self.closed and (cause := exception_under_way()) is not None:
            self._give_up(cause)
        try:
            if self._worker is not None and self.last_error is None:
                with self._all_end_on_error():
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
            raise make_error("State", f"rank {self.rank} is a server: it calls serve() alone")
        with self._all_end_on_error():
            yield self._worker
