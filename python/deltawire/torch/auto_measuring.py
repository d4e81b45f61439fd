"""What a rank measures before a plan: the link, and codecs on its own gradients."""

import os
import platform
import sys

import torch.distributed as dist

from deltawire import _core
from deltawire.planner import Machine
from deltawire.torch import arguments, codec_figures, link_probe
from deltawire.torch.exchanged import Exchanged
from deltawire.torch.link_probe import LinkProbe
from deltawire.torch.native import Sample


class Measuring:
    """A rank's measurements for one plan after the other.

    Args:
        connector: opens sessions and knows the settings.
        exchanged: the model's tensors.
        probe: a session of `link_probe.SPEC`, for the first plan; others are opened when needed.
    """

    def __init__(self, connector, exchanged: Exchanged, probe: _core.Session | None) -> None:
        self._connector = connector
        self._exchanged = exchanged
        self._session = probe
        self._sample: Sample | None = None
        self._failed: str | None = None

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

    def figures(self, tier: str) -> dict:
        """Of this rank, for `auto_decision.choose`; a collective. Where something fails it has the
        key "problem" alone."""
        if self._failed is not None:
            return {"problem": self._failed}
        try:
            return self._figures(tier)
        except Exception as cause:
            self.abort(f"measuring failed: {cause}")
            return {"problem": f"{type(cause).__name__}: {cause}"}

    def _figures(self, tier: str) -> dict:
        if self._session is None:
            self._session = self._connector.session(link_probe.SPEC)
        processors = _processors()
        local = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        cores = processors / local
        given = self._connector.settings
        timeout_ms = arguments.timeout_in_ms(given.timeout)
        probe = LinkProbe(self._session, self._connector.place[1], timeout_ms)
        link = probe.measure(Machine(cores=cores))
        figures, refused, uncoded = [], [], []
        sample = self._sample
        if sample is not None and sample.usable:
            dtypes = {dtype for *_, dtype in self._exchanged.tensors}
            specs = codec_figures.candidates(tier, dtypes)
            figures, refused = codec_figures.measure(specs, sample.parts, given.min_elements)
            uncoded, _ = codec_figures.measure(["fp32"], sample.parts, given.min_elements)
        return {
            "buckets": sample.buckets if sample is not None else [],
            "value_bytes": sample.value_bytes if sample is not None else [],
            "figures": figures,
            "uncoded": uncoded[0] if uncoded else None,
            "refused": refused,
            "link": link,
            "host": platform.node(),
            "processors": processors,
            "threads": given.threads or max(1, min(8, int(cores))),
        }

    def end(self) -> None:
        """Closes the session, and forgets the gradients."""
        self._sample = None
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
