"""The measured rows: a row is one way to exchange over one link."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    """Attributes:
    link: of every rank, in both directions, as `lab.ranks.links` takes it.
    spec: the codec of both directions.
    direct: the workers exchange among themselves, through DistributedDataParallel.
    overlap, backup, staleness: as `deltawire.torch.ParameterServer` takes them.
    slowness: how many times longer than the others the last worker computes.
    """

    link: str
    spec: str
    direct: bool = False
    overlap: str = "push"
    backup: int = 0
    staleness: int = 0
    slowness: int = 1

    def __str__(self) -> str:
        words = [f"`direct({self.spec})`" if self.direct else f"`{self.spec}`"]
        if self.overlap != "push":
            words.append(f"overlap={self.overlap}")
        words.extend(
            f"{name}={value}"
            for name, value in (("backup", self.backup), ("staleness", self.staleness))
            if value
        )
        if self.slowness > 1:
            words.append(f"one worker {self.slowness} times slower")
        return ", ".join(words)


def rows_over(links: list[str], specs: list[str]) -> list[Row]:
    """Every codec with servers, then float32 and the last codec by `direct`."""
    rows = []
    for link in links:
        rows.extend(Row(link, spec) for spec in specs)
        rows.extend(Row(link, spec, direct=True) for spec in dict.fromkeys(("fp32", specs[-1])))
    return rows


def special_rows(links: list[str], spec: str, slowness: int) -> list[Row]:
    """With and without overlap over the middle link; a slow worker over the fastest."""
    middle, fastest = links[len(links) // 2], links[-1]
    overlaps = [
        Row(middle, each, overlap=overlap)
        for each in ("fp32", spec)
        for overlap in ("none", "both")
    ]
    modes: list[dict] = [{}, {"backup": 1}, {"staleness": 2}]
    return overlaps + [Row(fastest, spec, slowness=slowness, **mode) for mode in modes]
