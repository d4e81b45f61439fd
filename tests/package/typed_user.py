"""A program as users write them, for the strict modes of mypy and pyright (`make check`)."""

from pathlib import Path

import deltawire
import numpy as np
import numpy.typing as npt


def round_trip(array: npt.NDArray[np.float32], spec: str) -> npt.NDArray[np.float32]:
    data: bytes = deltawire.encode(array, spec, min_elements=1)
    decoded: npt.NDArray[np.float32] = deltawire.decode(data)
    return decoded


def describe() -> list[str]:
    lines: list[str] = []
    for codec in deltawire.codecs():
        for parameter in codec.parameters:
            lines.append(f"{codec.name} {parameter.name}")
    return lines


def through_a_channel(array: npt.NDArray[np.float32]) -> bytes:
    sender = deltawire.Channel("3lc")
    message: bytes = sender.encode({"layer": array})
    total = np.zeros_like(array)
    deltawire.Channel("3lc").decode(message, {"layer": total})
    return message


def train(rank: int, address: str) -> float:
    gradient = np.ones(1000, np.float32)
    with deltawire.Session("3lc", rank=rank, world_size=2, address=address) as session:
        report = session.all_reduce({"weights": gradient})
        print(report, session.rank, session.spec)
        return session.metrics()["total_ratio"] or 1.0


def refuse(path: Path) -> str:
    try:
        deltawire.decode(path.read_bytes())
    except deltawire.DeltawireError as error:
        return error.code
    return ""
