"""The golden states of whole ranks: what reducers, a parameter server and its worker keep after
steps of two ranks, and a snapshot file.

Each rank is a thread. What a state stands for is told by the step after it: a rank that has loaded
it makes the same means as the one that saved it.
"""

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cases import bell
from deltawire import _core
from messages import packed

FOLDER = Path(__file__).parent / "states"
SNAPSHOT = FOLDER / "rank-3.step-300.snapshot"
REDUCERS = (
    "direct(3lc)",
    "ring(sbc)",
    "gather(topk)",
    "powersgd:rank=2",
    "direct(w: int8, rest fp32)",
    "hierarchical:group=1(sbc)",
)
STEPS = 3
LATE = ("late.server", "late.early-worker", "late.worker")
KEPT = bytes(range(200))  # in the snapshot
_MS = 60_000
_SEED = 7


def stem_of(spec: str) -> str:
    """The beginning of a reducer's files' names."""
    return "".join(letter if letter.isalnum() else "-" for letter in spec).strip("-")


def arrays_of(rank: int, step: int) -> dict[str, np.ndarray]:
    """A rank's gradients of a step: a matrix, a tensor that travels raw, a vector."""
    values = np.roll(bell(2000), 7 * rank + 31 * step)
    return {
        "w": values[:1000].reshape(25, 40).copy(),
        "b": values[1000:1005].copy(),
        "v": values[1300:1600].copy(),
    }


def _tensors(arrays: dict[str, np.ndarray]) -> list[tuple[str, int, int, list[int]]]:
    return [
        (name, each.ctypes.data, each.nbytes, list(each.shape)) for name, each in arrays.items()
    ]


def _at_once(*works: Callable[[], object]) -> list:
    """What each returns, run by threads; the first error is raised."""
    made: list = [None] * len(works)
    errors: list[BaseException] = []

    def run(at: int) -> None:
        try:
            made[at] = works[at]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return made


def _meshes(ranks: int = 2) -> list[tuple[_core.Listener, _core.Mesh]]:
    listeners = [_core.Listener("127.0.0.1") for _ in range(ranks)]
    endpoints = [listener.endpoint for listener in listeners]
    return [
        (listener, _core.Mesh(rank, endpoints, bytes(range(32)), "golden"))
        for rank, listener in enumerate(listeners)
    ]


def _step(session: "_core.Session", rank: int, step: int) -> dict[str, np.ndarray]:
    arrays, ended, errors = arrays_of(rank, step), threading.Event(), []

    def end(error: Exception | None, _report: object) -> None:
        errors.append(error)
        ended.set()

    session.submit(_tensors(arrays), _core.Step(step, 0, True), _MS, end)
    ended.wait()
    if errors[0] is not None:
        raise errors[0]
    return arrays


def reducer_states(
    spec: str, loaded: list[bytes] | None = None
) -> tuple[list[bytes], list[dict[str, np.ndarray]]]:
    """Both ranks' states after STEPS steps, and the means of the step after it.

    With `loaded`, states of both ranks: these are loaded instead of running the steps.
    """
    options = _core.ReducerOptions(8, "exact", 1, "error")

    def life(rank: int, listener: "_core.Listener", mesh: "_core.Mesh") -> tuple:
        session = _core.Session(listener, mesh, spec, options)
        if loaded is not None:
            session.load(bytearray(loaded[rank]))
        for step in range(0 if loaded is not None else STEPS):
            _step(session, rank, step)
        state = session.save()
        means = _step(session, rank, STEPS)
        session.close()
        return state, means

    both = _at_once(
        *(lambda rank=rank, mesh=mesh: life(rank, *mesh) for rank, mesh in enumerate(_meshes()))
    )
    return [state for state, _ in both], [means for _, means in both]


def _links(ranks: int) -> list["_core.Connection"]:
    return _at_once(*(lambda mesh=mesh: _core.Connection(*mesh) for mesh in _meshes(ranks)))


def _serve(link: "_core.Connection", options: "_core.ServerOptions", loaded: bytes | None) -> bytes:
    """A server's state after STEPS steps, or where `loaded` says; it makes one step more."""
    model = arrays_of(0, 100)  # stays here: the server is given its address
    server = _core.ParameterServer(link, _tensors(model), "adam:lr=0.125", options)
    if loaded is not None:
        server.load(bytearray(loaded))
    for _ in range(STEPS if loaded is None else 0):
        assert server.step(_MS)
    state = server.save()
    assert server.step(_MS)
    assert not server.step(_MS)  # the workers have closed
    return state


def _worker(
    link: "_core.Connection",
    options: "_core.ServerOptions",
    model: dict[str, np.ndarray],
    loaded: bytes | None,
) -> "_core.ParameterWorker":
    worker = _core.ParameterWorker(link, _tensors(model), options)
    if loaded is not None:
        worker.load(bytearray(loaded))
    worker.open(_MS)
    return worker


def _train(worker: "_core.ParameterWorker", rank: int, step: int) -> None:
    for at, gradient in enumerate(arrays_of(rank, step).values()):
        worker.push(at, gradient.ravel())
    worker.pull_all(_MS)


def served_states(loaded: list[bytes] | None = None) -> tuple[list[bytes], dict[str, np.ndarray]]:
    """The states of a server and its worker after STEPS steps, and the model a step later.

    With `loaded`, their states: these are loaded instead of running the steps.
    """
    options = _core.ServerOptions(1, 0, "3lc", "3lc:s=1.75", 8, _SEED)
    of_server, of_worker = loaded or (None, None)

    def work() -> tuple[bytes, dict]:
        model = arrays_of(1, 100)
        worker = _worker(second, options, model, of_worker)
        for step in range(STEPS if loaded is None else 0):
            _train(worker, 1, step)
        state = worker.save()
        _train(worker, 1, STEPS)
        worker.close(_MS)
        return state, model

    (first, second) = _links(2)
    server_state, (worker_state, model) = _at_once(lambda: _serve(first, options, of_server), work)
    return [server_state, worker_state], model


def late_states(loaded: list[bytes] | None = None) -> tuple[list[bytes], dict[str, np.ndarray]]:
    """The states of a server, a worker in time and a backup worker whose gradients of STEPS steps
    all came too late; and the model after a step that the backup worker alone makes, with them.

    One push counts in a step, and the worker in time has its model before the other pushes: fp32
    goes out, so that a push which left in vain holds the same as one that didn't leave.
    """
    options = _core.ServerOptions(1, 1, "fp32", "3lc:s=1.75", 8, _SEED)
    of_server, of_early, of_late = loaded or (None, None, None)

    def work() -> tuple[list[bytes], dict]:
        models = [arrays_of(1, 100), arrays_of(2, 100)]
        early = _worker(second, options, models[0], of_early)
        late = _worker(third, options, models[1], of_late)
        for step in range(STEPS if loaded is None else 0):
            _train(early, 1, step)
            _train(late, 2, step)
        kept = [early.save(), late.save()]
        _train(late, 2, STEPS)
        _at_once(lambda: early.close(_MS), lambda: late.close(_MS))
        assert all(np.array_equal(models[0][name], models[1][name]) for name in models[0])
        return kept, models[1]

    (first, second, third) = _links(3)
    server_state, (worker_states, model) = _at_once(lambda: _serve(first, options, of_server), work)
    return [server_state, *worker_states], model


def snapshot(folder: Path) -> bytes:
    """A snapshot file's bytes."""
    place_of(folder).write(300, KEPT)
    return (folder / SNAPSHOT.name).read_bytes()


def place_of(folder: Path) -> "_core.SnapshotPlace":
    """Of rank 3's snapshots."""
    return _core.SnapshotPlace(str(folder), 3, "golden settings", 2)


def missing() -> dict[Path, bytes]:
    """The files that there are none of yet."""
    added: dict[Path, bytes] = {}
    for spec in REDUCERS:
        path = FOLDER / f"{stem_of(spec)}.npz"
        if path.exists():
            continue
        states, means = reducer_states(spec)
        for rank, state in enumerate(states):
            added[path.with_suffix(f".{rank}.state")] = state
        added[path] = packed(**means[0])
    if not (FOLDER / "server.npz").exists():
        (server, worker), model = served_states()
        added[FOLDER / "server.state"], added[FOLDER / "worker.state"] = server, worker
        added[FOLDER / "server.npz"] = packed(**model)
    if not (FOLDER / "late.npz").exists():
        states, model = late_states()
        added |= {FOLDER / f"{who}.state": state for who, state in zip(LATE, states, strict=True)}
        added[FOLDER / "late.npz"] = packed(**model)
    if not SNAPSHOT.exists():
        with tempfile.TemporaryDirectory() as folder:
            added[SNAPSHOT] = snapshot(Path(folder))
    return added
