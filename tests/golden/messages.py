"""The golden messages: what a channel sends in two steps, and what it keeps after them.

The second step has another scale, and zeros instead of a tensor: a bare segment, where the
codec keeps what it has not sent.
"""

import io
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import deltawire
import numpy as np
from cases import bell

FOLDER = Path(__file__).parent / "messages"
STEPS = (300, 301)
SCALES = {300: 1.0, 301: 8.0}
RANK, WORLD = 2, 5
MIN_ELEMENTS = 8
RULES = "w: topk:k=10%,values=bf16, v: sbc:p=0.1 with momentum=0.9, rest int8"
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw")


@dataclass(frozen=True)
class Sent:
    """A channel of this spec."""

    spec: str
    follows_library: bool = False  # the bytes are those of a library's version: only values count
    kind: str = "plain"  # of arrays: see `arrays_of`

    @property
    def stem(self) -> str:
        """The beginning of its files' names."""
        if self.kind != "plain":
            return self.kind
        return "rules" if " " in self.spec else self.spec

    @property
    def decodes_here(self) -> bool:
        """Whether `deltawire.Channel` decodes it: into arrays of float32 alone."""
        return self.kind != "halves"

    def channel(self) -> "deltawire.Channel":
        """Make a new one."""
        return deltawire.Channel(self.spec, rank=RANK, world_size=WORLD, min_elements=MIN_ELEMENTS)

    def path(self, ending: str) -> Path:
        """One of its files."""
        return FOLDER / f"{self.stem}.{ending}"


def arrays_of(step: int, kind: str = "plain") -> dict[str, np.ndarray]:
    """What is sent in a step: a matrix, a tensor that travels raw, an empty one, a vector.

    Of kind "runs" several raw ones follow each other; of kind "halves" some of these and the matrix
    are of float16.
    """
    first = step == STEPS[0]
    values = bell(2000)
    if kind != "plain":
        begin = 0 if first else 1000
        half = np.float16 if kind == "halves" else np.float32
        return {
            "a": values[begin : begin + 5].copy(),
            "none": np.zeros((0, 3), np.float32),
            "b": values[begin + 5 : begin + 11].reshape(2, 3),
            "c": values[begin + 11 : begin + 14].astype(half),
            "w": values[begin + 100 : begin + 500].astype(half).reshape(20, 20),
            "d": values[begin + 14 : begin + 21].astype(half),
            "e": values[begin + 21].reshape(()).astype(half),
        }
    return {
        "w": values[:1000].reshape(10, 100) * np.float32(first),
        "b": values[1000:1005].copy(),
        "none": np.zeros((0, 3), np.float32),
        "v": values[1300:1600] if first else values[1600:1900],
    }


def sent(binary: str) -> Iterator[Sent]:
    """Every codec for all tensors, and rules; frames of version 2: runs of raw tensors, float16."""
    listed = subprocess.run([binary, "codecs", "--json"], check=True, capture_output=True).stdout
    for codec in json.loads(listed)["codecs"]:
        yield Sent(codec["name"], codec["bytes_follow_library"])
    yield Sent(RULES)
    yield Sent("int8", kind="runs")
    yield Sent("fp32", kind="halves")


def encode(channel: "deltawire.Channel", kind: str = "plain") -> dict[str, bytes]:
    """What goes out in the steps, and what is kept then, by the ending of the file's name."""
    made = {
        f"{step}.message": channel.encode(arrays_of(step, kind), scale=SCALES[step], step=step)
        for step in STEPS
    }
    return made | {"state": channel.save()}


def decode(
    channel: "deltawire.Channel", message: bytes, step: int, kind: str = "plain"
) -> dict[str, np.ndarray]:
    """The values in a message."""
    into = {name: np.full_like(array, 7) for name, array in arrays_of(step, kind).items()}
    channel.decode(message, into, accumulate=False, step=step, rank=RANK)
    return into


def optimizer_state(kind: str) -> bytes:
    """What an optimizer keeps after two steps of one tensor and one of another."""
    optimizer = deltawire.Optimizer(f"{kind}:lr=0.125")
    for name, count in (("w", 30), ("b", 5), ("w", 30)):
        optimizer.step(name, np.zeros(count, np.float32), bell(count))
    return optimizer.save()


def packed(**arrays: np.ndarray) -> bytes:
    """A .npz file's bytes."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def missing(binary: str) -> dict[Path, bytes]:
    """The files that there are none of yet."""
    added: dict[Path, bytes] = {}
    for case in sent(binary):
        if case.path("npz").exists():
            continue
        made = encode(case.channel(), case.kind)
        added |= {case.path(ending): data for ending, data in made.items()}
        values = {
            f"{name}.{step}": array
            for step in STEPS
            for name, array in (
                decode(case.channel(), made[f"{step}.message"], step, case.kind)
                if case.decodes_here
                else arrays_of(step, case.kind)  # without loss
            ).items()
        }
        added[case.path("npz")] = packed(**values)
    for kind in OPTIMIZERS:
        path = FOLDER / f"optimizer-{kind}.state"
        if not path.exists():
            added[path] = optimizer_state(kind)
    return added
