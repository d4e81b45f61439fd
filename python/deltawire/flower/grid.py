"""Flower's Grid with compressed messages: outgoing ones are packed, incoming ones checked."""

import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable

from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.serverapp import Grid

from deltawire.errors import DeltawireError, invalid, make_error, mismatch, wrong_state
from deltawire.flower import records
from deltawire.flower.reply_checks import (
    check_metrics,
    check_others,
    leave_out_uneven_lists,
    mean_metrics,
    only_record,
    samples_of,
    unlike_most,
)
from deltawire.rounds.broadcast import Broadcast
from deltawire.rounds.intake import MOST_SAMPLES, Intake, added
from deltawire.rounds.limits import (
    TEN_MEDIANS,
    TWO_MEDIANS,
    Medians,
    brief,
    check_limit,
    sample_cap_of,
)
from deltawire.rounds.messages import PATCHES
from deltawire.rounds.observability import Seen

_LOG = logging.getLogger("flwr")
_SEEN = ("refused", "silent", "down_bytes", "up_bytes", "raw_bytes")
_MOST_ERROR_CHARACTERS = 2_000


@dataclasses.dataclass
class _Exchange:
    """One `send_and_receive`: what its messages share, and their outcome."""

    record: str
    form: records.RecordForm
    others: dict[str, Array]
    train: bool
    sent: dict[int, int] = dataclasses.field(default_factory=dict)  # node: version
    ids: dict[str, int] = dataclasses.field(default_factory=dict)  # message id: node
    errors: list[Message] = dataclasses.field(default_factory=list)
    passed: dict[int, Message] = dataclasses.field(default_factory=dict)  # by node
    samples: dict[int, int] = dataclasses.field(default_factory=dict)
    norms: dict[int, float] = dataclasses.field(default_factory=dict)
    bytes: dict[int, int] = dataclasses.field(default_factory=dict)  # of header and frame


class CompressedGrid(Grid):
    """Wraps a grid; see `Compressed` for the arguments.

    Attributes:
        counts: of the run: "same", "delta", "patch", "full" downloads, "need_full" answers,
            "down_bytes" and "up_bytes" of frames and headers (without refused replies), "raw_bytes"
            (the same frames as float32), "refused" replies, "silent" clients (no reply, or an
            error).
        refused: (round, node, reason) of each; reasons are cut to 300 characters.
        capped: (round, node, its samples, what it counted with) where `sample_cap` lowered it.
    """

    def __init__(
        self,
        grid: "Grid | None",
        *,
        down: str | None,
        up: str | None = None,
        max_norm: float | Medians | None = TEN_MEDIANS,
        max_samples: int = MOST_SAMPLES,
        min_elements: int = 256,
        weights: str = "float32",
        bases: int | None = None,
        samples_key: str = "num-examples",
        sample_cap: int | Medians | None = TWO_MEDIANS,
        watch: Iterable[Callable[[Seen], None]] = (),
    ) -> None:
        self._grid = grid
        self._watch = tuple(watch)
        self._broadcast = Broadcast(down, min_elements=min_elements, weights=weights, bases=bases)
        self._intake = Intake(
            up, max_norm=max_norm, max_samples=max_samples, min_elements=min_elements
        )
        check_limit("sample_cap", sample_cap)
        self._samples_key, self._max_samples, self._cap = samples_key, max_samples, sample_cap
        self._round = -1
        self._exact: frozenset[str] = frozenset()
        self.counts: Counter = Counter()
        self.refused: list[tuple[int, int, str]] = []
        self.capped: list[tuple[int, int, int, int]] = []
        self._norms: dict[int, float] = {}  # of the last training's updates

    def set_run(self, run) -> None:
        """Passes the run on to the wrapped grid."""
        self._grid.set_run(run)

    @property
    def run(self):
        """The run of the wrapped grid."""
        return self._grid.run

    def create_message(self, *args, **settings):
        """Makes an uncompressed message of the wrapped grid."""
        return self._grid.create_message(*args, **settings)

    def get_node_ids(self):
        """Asks the wrapped grid for the nodes' numbers."""
        return self._grid.get_node_ids()

    def get_nodes(self):
        """Asks the wrapped grid for the nodes."""
        return self._grid.get_nodes()

    def push_messages(self, messages):
        """Calls the wrapped grid; messages are not compressed."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids):
        """Calls the wrapped grid; messages are not compressed."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None):
        """Replies as the strategy would get them without compression; bad ones are left out.

        Raises:
            InvalidArgumentError: messages of more than one ArrayRecord, or of different models.
            DeltawireError: "NotFinite": the strategy's model isn't finite; the text names the
                clients of the largest updates before it.
        """
        messages = list(messages)
        if not any(message.content.array_records for message in messages):
            return self._grid.send_and_receive(messages, timeout=timeout)
        began, before = time.monotonic(), self.counts.copy()
        exchange = self._begin(messages)
        replies = self._send(exchange, messages, False, timeout)
        needing = [reply for reply in replies if _needs_full(reply)]
        if needing:
            replies = [reply for reply in replies if not _needs_full(reply)]
            nodes = {reply.metadata.src_node_id for reply in needing}
            self.counts["need_full"] += len(nodes)
            self.counts["up_bytes"] += sum(records.header_bytes(r.content) for r in needing)
            _LOG.warning("deltawire: nodes %s have lost their state: the model again", nodes)
            again = [m for m in messages if m.metadata.dst_node_id in nodes]
            left = None if timeout is None else max(1.0, timeout - (time.monotonic() - began))
            replies += self._send(exchange, again, True, left)
        self._check(exchange, replies)
        self._tell(exchange, before)
        return [*exchange.passed.values(), *exchange.errors]

    def _begin(self, messages: list[Message]) -> _Exchange:
        name, record = only_record(messages[0].content)
        for message in messages[1:]:
            other = only_record(message.content)
            if other[0] != name or (other[1] is not record and other[1] != record):
                raise invalid(
                    "the strategy sends different models to clients; deltawire carries one to all"
                )
        floats, others = records.split(record, self._exact)
        self._exact |= frozenset(others)
        dtypes = {key: array.dtype.name for key, array in floats.items()}
        form = records.RecordForm(tuple(record), dtypes)
        try:
            self._broadcast.advance(floats, also=form.text)
        except DeltawireError as error:
            raise self._blamed(error) from None
        train = messages[0].metadata.message_type.split(".")[0] == "train"
        self._round += train
        return _Exchange(name, form, others, train)

    def _blamed(self, error: DeltawireError) -> DeltawireError:
        """An error in the strategy's model, with the clients of the largest updates in it."""
        if error.code != "NotFinite" or not self._norms:
            return error
        largest = sorted(self._norms, key=self._norms.get, reverse=True)[:3]
        norms = ", ".join(f"{self._norms[node]:.4g} of node {node}" for node in largest)
        text = (
            f"{error}; the strategy made this model; the largest norms of its last updates: {norms}"
        )
        return make_error(error.code, text)

    def _send(self, exchange: _Exchange, messages: list[Message], full: bool, timeout):
        packed = [self._packed(exchange, message, full) for message in messages]
        replies = list(self._grid.send_and_receive(packed, timeout=timeout))
        for message in packed:  # the grid has given them their ids
            exchange.ids[message.metadata.message_id] = message.metadata.dst_node_id
        return replies

    def _packed(self, exchange: _Exchange, message: Message, full: bool) -> Message:
        node = message.metadata.dst_node_id
        accepted, refused = self._intake.verdicts(node)
        download = dataclasses.replace(
            self._broadcast.download(node, full=full),
            round=max(0, self._round),
            accepted=accepted,
            refused=refused,
        )
        exchange.sent[node] = download.version
        self.counts[download.kind] += 1
        self.counts["raw_bytes"] += self._model_bytes()
        also = {"record": exchange.record, "samples": self._samples_key}
        if self._broadcast.sends_patches:
            also["patches"] = PATCHES
        content = RecordDict(dict(message.content))  # a strategy may share one RecordDict
        content[exchange.record] = records.packed(download.frames, exchange.others)
        content[records.HEADER] = records.download_header(download, also)
        frames = sum(len(frame) for frame in download.frames)
        self.counts["down_bytes"] += frames + records.header_bytes(content)
        given = message.metadata
        return Message(
            content,
            dst_node_id=node,
            message_type=given.message_type,
            ttl=given.ttl,
            group_id=given.group_id,
        )

    def _model_bytes(self) -> int:
        return sum(array.nbytes for array in self._broadcast.reference.values())

    def _check(self, exchange: _Exchange, replies: list[Message]) -> None:
        """Sorts replies into those for the strategy, errors, and refused ones."""
        silent = set(exchange.sent)
        for reply in replies:
            # An error that the SuperLink made has its own id as the source.
            source = reply.metadata.src_node_id
            node = exchange.ids.get(reply.metadata.reply_to_message_id, source)
            silent.discard(node)
            if reply.has_error():
                self._take_error(exchange, node, reply)
                continue
            try:
                self._open(exchange, node, reply)
                exchange.passed[node] = reply
            except Exception as error:  # whatever a client sends must not end the run
                self._refuse(exchange, node, error)
        for node in silent:
            self._broadcast.forget(node)
        if silent:
            self.counts["silent"] += len(silent)
            _LOG.warning("deltawire: no reply of nodes %s; the round goes on", sorted(silent))
        self._compare(exchange)
        self.counts["up_bytes"] += sum(exchange.bytes[node] for node in exchange.passed)
        self.counts["raw_bytes"] += exchange.train * len(exchange.passed) * self._model_bytes()

    def _take_error(self, exchange: _Exchange, node: int, reply: Message) -> None:
        if reply.metadata.src_node_id != node:  # not from the node itself
            self._broadcast.forget(node)
        self.counts["silent"] += 1
        given = reply.error
        if given.reason is not None:
            reply.error = Error(given.code, brief(given.reason, _MOST_ERROR_CHARACTERS))
        _LOG.warning("deltawire: node %s replies with an error: %s", node, reply.error)
        exchange.errors.append(reply)  # strategies count failures

    def _compare(self, exchange: _Exchange) -> None:
        """The checks that need all replies: finds those that differ from the others, are too large,
        or claim too many samples."""
        for node in unlike_most({node: m.content for node, m in exchange.passed.items()}):
            words = "its records or metrics have other names or kinds than the others'"
            del exchange.passed[node]
            self._refuse(exchange, node, words)
        if uneven := leave_out_uneven_lists([m.content for m in exchange.passed.values()]):
            text = "deltawire: metrics %s are lists of different lengths in round %s: left out"
            _LOG.warning(text, uneven, self._round)
        if exchange.train:
            norms = {node: exchange.norms[node] for node in exchange.passed}
            for node, error in self._intake.out_of_line(norms).items():
                del exchange.passed[node]
                self._refuse(exchange, node, error)
            self._norms = {node: exchange.norms[node] for node in exchange.passed}
        cap = sample_cap_of(self._cap, {node: exchange.samples[node] for node in exchange.passed})
        above = [n for n in exchange.passed if cap is not None and exchange.samples[n] > cap]
        for node in above:
            self.capped.append((self._round, node, exchange.samples[node], cap))
            for record in exchange.passed[node].content.metric_records.values():
                if self._samples_key in record:
                    record[self._samples_key] = cap
        if above:
            _LOG.warning(
                "deltawire: round %s: nodes %s count with %s samples, not with all that they "
                "claim; sample_cap= sets another limit",
                self._round,
                above,
                f"{cap:,}",
            )

    def _tell(self, exchange: _Exchange, before: Counter) -> None:
        if not self._watch:
            return
        taken = [reply.content for reply in exchange.passed.values()]
        since = {name: count - before[name] for name, count in self.counts.items()}
        seen = Seen(
            "train" if exchange.train else "evaluate",
            max(0, self._round),
            clients=len(set(exchange.ids.values())),
            replies=len(taken),
            metrics=mean_metrics(taken, self._samples_key),
            **{name: since.get(name, 0) for name in _SEEN},
        )
        self.tell(seen)

    def tell(self, seen: Seen) -> None:
        """Calls all watchers."""
        for watch in self._watch:
            watch(seen)

    def _refuse(self, exchange: _Exchange, node: int, reason: object) -> None:
        """Drops a reply. Its client is notified if it was a training reply of this round."""
        if exchange.train and getattr(reason, "code", None) != "State":
            self._intake.refuse(node, self._round)
        self.counts["refused"] += 1
        self.refused.append((self._round, node, brief(reason)))
        text = "deltawire: reply of node %s dropped in round %s: %s"
        _LOG.warning(text, node, self._round, brief(reason))

    def _open(self, exchange: _Exchange, node: int, reply: Message) -> None:
        """Checks a reply and puts plain arrays in it."""
        version = exchange.sent.pop(node, None)
        fields = records.reply_fields(reply.content)
        if fields is None:
            raise mismatch("no header: the client app has no deltawire.flower.mod in mods=[...]")
        if version is not None:  # even if the reply is refused, its client says which model it has
            self._broadcast.confirm(node, fields.get("version"), fields.get("patches"))
        said = (fields.get("round"), fields.get("version"))
        if version is None or said != (max(0, self._round), version):
            shown = [brief(repr(number), 20) for number in said]
            raise wrong_state(
                f"it is of round {shown[0]}, version {shown[1]}; due is round {self._round}, "
                f"version {version}"
            )
        exchange.bytes[node] = records.header_bytes(reply.content)
        metrics = list(reply.content.metric_records.values())
        check_metrics(metrics)
        key, most = self._samples_key, self._max_samples
        exchange.samples[node] = samples_of(metrics, key, most, needed=exchange.train)
        del reply.content[records.HEADER]
        if exchange.train:
            self._unpack(exchange, node, reply.content, fields)

    def _unpack(self, exchange: _Exchange, node: int, content: RecordDict, fields: dict) -> None:
        name, record = only_record(content)
        frame = records.frame_of(record)
        others = {key: array for key, array in record.items() if key != records.FRAME}
        check_others(others, exchange.others)
        reply = records.reply_of(fields, frame, exchange.samples[node])
        update = self._intake.take(
            node,
            reply,
            due=(self._round, self._broadcast.version),
            layout=self._broadcast.layout.tensors,
        )
        # Added to the strategy's own model, not to the clients' copy of it: so the mean of the
        # replies includes what compression of the model has left out.
        plain = added(self._broadcast.source, update.change, exchange.form.dtypes)
        content[name] = ArrayRecord(
            {key: Array(plain[key]) if key in plain else others[key] for key in exchange.form.order}
        )
        exchange.norms[node] = update.norm
        exchange.bytes[node] += len(frame)


def _needs_full(reply: Message) -> bool:
    if not reply.has_content():
        return False
    try:
        fields = records.reply_fields(reply.content)
    except DeltawireError:
        return False
    return fields is not None and fields.get("need") == "full"
