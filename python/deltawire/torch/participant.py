"""What every door to an exchange has: its first error, its records, its end by Ctrl-C."""

from deltawire import _core
from deltawire.errors import DeltawireError
from deltawire.torch.ledger import Ledger


class Participant:
    """A rank's part in an exchange: a session, and the ledger that its buckets are counted in.

    Thread rule: every member may be called from any thread.
    """

    rank: int
    _session: _core.Session
    _ledger: Ledger

    def interrupted(self) -> None:
        """Ends the exchange on every rank because of Ctrl-C here."""
        if not self._session.closed:
            self._session.abort(f"interrupted on rank {self.rank}")

    @property
    def last_error(self) -> DeltawireError | None:
        """The first error, typed; None while all is well."""
        return self._ledger.last_error

    @property
    def closed(self) -> bool:
        """True after `close()`, and where a failure closes by itself (`LocalSteps`) after one."""
        return self._session.closed

    @property
    def step_records(self) -> list[dict]:
        """Of the latest 4,096 steps (of `LocalSteps`: rounds), oldest first: dicts of

        - buckets, elements;
        - encode_ms, exchange_ms (waiting for others), decode_ms;
        - bytes_sent: of this rank's messages, every copy counted, with their headers;
        - raw_bytes: of the same messages as bare float32, 4 bytes an element. In the mean over
          the N ranks, "direct" and "ring" send each element 2 (N-1) / N times; "gather" sends it
          N-1 times on each;
        - ratio: raw_bytes / bytes_sent, how many times smaller; None where nothing was sent (one
          rank alone). A round counts once, however many local steps it stands for;
        - digest: an int, of the step's means, equal on all ranks;
        - finite: False for a step that came out as NaN and left no trace (nonfinite="pass");
        - of a round local_steps, too.
        """
        return list(self._ledger.records)

    def metrics(self) -> dict:
        """The last step's record (see `step_records`), the same keys summed over all steps as
        `total_...` (`total_ratio`: the sums' ratio), `steps` (of `LocalSteps`: rounds), of
        these `nonfinite_steps`, and the links' `traffic_bytes_sent` and `traffic_bytes_received`
        (transport headers and control messages included). Bytes held beside the model's own:
        `residual_bytes`, `staging_bytes` (where means are formed and messages come in),
        `message_bytes` (encoded here, until the step ends) and `peak_memory_bytes`, the most of all
        three together so far."""
        sent, received = self._session.traffic()
        memory = self._session.memory()
        return {
            **self._ledger.metrics(),
            "traffic_bytes_sent": sent,
            "traffic_bytes_received": received,
            "residual_bytes": memory.residual_bytes,
            "staging_bytes": memory.staging_bytes,
            "message_bytes": memory.message_bytes,
            "peak_memory_bytes": memory.peak_bytes,
        }
