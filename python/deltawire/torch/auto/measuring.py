"""What a rank measures before a plan: the link, and codecs on its own gradients."""

import os
import platform
import sys

import torch.distributed as dist

from deltawire import _core
from deltawire.planner import Machine
from deltawire.torch.auto import codec_figures, link_probe
from deltawire.torch.auto.link_probe import LinkProbe
from deltawire.torch.auto.native import Sample
from deltawire.torch.core import arguments
from deltawire.torch.ddp.parameters import Exchanged

_UNCODED = "fp32"


class Measuring:
    """A rank's measurements for one plan after the other, a piece at a time, so that no step has to
    wait for all of them.

    Args:
        connector: opens sessions and knows the settings.
        exchanged: the model's tensors.
        tier: of the codecs.
        probe: a session of `link_probe.SPEC`, for the first plan; others are opened when needed.

    Attributes:
        pieces: how many there are, the same on all ranks.
    """

    def __init__(
        self, connector, exchanged: Exchanged, tier: str, probe: _core.Session | None
    ) -> None:
        self._connector = connector
        self._exchanged = exchanged
        self._specs = codec_figures.candidates(tier, {dtype for *_, dtype in exchanged.tensors})
        self._session = probe
        self._sample: Sample | None = None
        self._failed: str | None = None
        self.pieces = 1 + LinkProbe.PIECES + self._trials_of({}).rounds
        self._left = 0
        self._steps: dict = {}
        self._probe: LinkProbe | None = None
        self._trials: codec_figures.Trials | None = None

    def sample(self, bucket: dist.GradBucket) -> None:
        """A bucket of the step to measure with, before it is exchanged; of whole steps. Never
        raises."""
        try:
            if bucket.index() == 0:
                self._sample = Sample(self._exchanged)
            if self._sample is not None:
                self._sample.add(bucket)
        except Exception as cause:
            self._failed = f"{type(cause).__name__}: {cause}"

    def advance(self, steps: dict) -> bool:
        """The next piece, a collective; whether it was the last. Never raises: what fails is in
        `figures`, and the other ranks go on. After the last piece it begins anew.

        Args:
            steps: `ready` and `ends` of the native steps until now; those before the first piece
                are planned with.
        """
        if self._left == 0:
            self._left, self._trials, self._steps = self.pieces, None, steps
        piece, self._left = self.pieces - self._left, self._left - 1
        try:
            if self._failed is None:
                self._advance(piece)
        except Exception as cause:
            self.abort(f"measuring failed: {cause}")
            self._failed = f"{type(cause).__name__}: {cause}"
        return self._left == 0

    def _advance(self, piece: int) -> None:
        if piece == 0:
            if self._session is None:
                self._session = self._connector.session(link_probe.SPEC)
            timeout_ms = arguments.timeout_in_ms(self._connector.settings.timeout)
            self._probe = LinkProbe(self._session, self._connector.place[1], timeout_ms)
        elif piece <= LinkProbe.PIECES:
            self._probe.advance()
        else:
            if self._trials is None:
                sample = self._sample
                usable = sample is not None and sample.usable
                self._trials = self._trials_of(sample.parts if usable else {})
            self._trials.advance()

    def _trials_of(self, parts: dict) -> codec_figures.Trials:
        least = self._connector.settings.min_elements
        return codec_figures.Trials([_UNCODED, *self._specs], parts, least)

    def figures(self) -> dict:
        """Of this rank, for `decision.choose`, after the last piece. Where something has
        failed it has the key "problem" alone."""
        if self._failed is not None:
            return {"problem": self._failed}
        sample, processors = self._sample, _processors()
        cores = processors / int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        threads = self._connector.settings.threads
        found, refused = self._trials.results()
        uncoded = _core.canonical_spec(_UNCODED)
        return self._steps | {
            "buckets": sample.buckets if sample is not None else [],
            "value_bytes": sample.value_bytes if sample is not None else [],
            "figures": [each for each in found if each["spec"] != uncoded],
            "uncoded": next((each for each in found if each["spec"] == uncoded), None),
            "refused": refused,
            "link": self._probe.result(Machine(cores=cores)),
            "host": platform.node(),
            "processors": processors,
            "threads": threads or max(1, min(8, int(cores))),
        }

    def end(self) -> None:
        """Closes the session, and forgets the gradients."""
        self._sample, self._left = None, 0
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def abort(self, reason: str) -> None:
        """Fails a measurement under way on every rank."""
        if self._session is not None:
            self._session.abort(reason)


def _processors() -> int:
    """That this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
