"""Flower's Grid with compressed messages: what goes is packed, what comes is checked."""

import dataclasses
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid

from deltawire.errors import make_error
from deltawire.flower import records
from deltawire.policy import Policy
from deltawire.rounds.broadcast import Broadcast
from deltawire.rounds.intake import MOST_SAMPLES, Intake, check_samples
from deltawire.rounds.messages import check_layout, layout_of
from deltawire.rounds.seeing import Seen

_LOG = logging.getLogger("flwr")
_SEEN = ("refused", "silent", "down_bytes", "up_bytes", "raw_bytes")


@dataclasses.dataclass
class _Exchange:
    """One `send_and_receive`: what is the same for all its messages."""

    record: str
    order: list[str]
    dtypes: dict[str, str]
    others: dict[str, Array]
    train: bool
    sent: dict[int, int] = dataclasses.field(default_factory=dict)  # node: version
    ids: dict[str, int] = dataclasses.field(default_factory=dict)  # message id: node


class CompressedGrid(Grid):
    """Wraps a grid; see `Compressed` for the arguments.

    Attributes:
        counts: of the run: "same", "delta", "full" downloads, "need_full" answers, "down_bytes" and
            "up_bytes" of frames, "raw_bytes" (what they would be as float32), "refused" replies,
            "silent" (no reply, or an error's).
        refused: (round, node, reason) of each.
    """

    def __init__(
        self,
        grid: Grid | None,
        *,
        down: Policy | None,
        up: Policy | None = None,
        max_norm: float | None = None,
        max_samples: int = MOST_SAMPLES,
        min_elements: int = 256,
        samples_key: str = "num-examples",
        sample_cap: int | None = None,
        watch: Iterable[Callable[[Seen], None]] = (),
    ) -> None:
        self._grid = grid
        self._watch = tuple(watch)
        self._broadcast = Broadcast(down, min_elements=min_elements)
        self._intake = Intake(
            up, max_norm=max_norm, max_samples=max_samples, min_elements=min_elements
        )
        self._samples_key, self._max_samples, self._cap = samples_key, max_samples, sample_cap
        self._round = -1
        self._exact: frozenset[str] = frozenset()
        self.counts: Counter = Counter()
        self.refused: list[tuple[int, int, str]] = []

    def set_run(self, run) -> None:
        """The grid's."""
        self._grid.set_run(run)

    @property
    def run(self):
        """The grid's."""
        return self._grid.run

    def create_message(self, *args, **settings):
        """The grid's."""
        return self._grid.create_message(*args, **settings)

    def get_node_ids(self):
        """The grid's."""
        return self._grid.get_node_ids()

    def get_nodes(self):
        """The grid's."""
        return self._grid.get_nodes()

    def push_messages(self, messages):
        """The grid's: not compressed."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids):
        """The grid's: not compressed."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None):
        """Replies as the strategy would have had them without compression; bad ones are left out.

        Raises:
            InvalidArgumentError: messages of more than one ArrayRecord, or of different models.
            DeltawireError: a model of the strategy's that isn't finite ("NotFinite").
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
            _LOG.warning("deltawire: nodes %s have lost their state: the model again", nodes)
            again = [m for m in messages if m.metadata.dst_node_id in nodes]
            left = None if timeout is None else max(1.0, timeout - (time.monotonic() - began))
            replies += self._send(exchange, again, True, left)
        passed = self._checked(exchange, replies)
        self._tell(exchange, passed, before)
        return passed

    def _begin(self, messages: list[Message]) -> _Exchange:
        name, record = _only_record(messages[0].content)
        for message in messages[1:]:
            other = _only_record(message.content)
            if other[0] != name or (other[1] is not record and other[1] != record):
                raise make_error(
                    "InvalidArgument",
                    "the strategy sends different models to clients; deltawire carries one to all",
                )
        floats, others = records.split(record, self._exact)
        self._exact |= frozenset(others)
        self._broadcast.advance(floats)
        train = messages[0].metadata.message_type.split(".")[0] == "train"
        self._round += train
        dtypes = {key: array.dtype.name for key, array in floats.items()}
        return _Exchange(name, list(record), dtypes, others, train)

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
        self.counts["down_bytes"] += download.byte_count
        self.counts["raw_bytes"] += self._model_bytes()
        also = {
            "record": exchange.record,
            "order": exchange.order,
            "dtypes": exchange.dtypes,
            "samples": self._samples_key,
        }
        content = RecordDict(dict(message.content))  # a strategy may share one RecordDict
        content[exchange.record] = records.packed(download.frames, exchange.others)
        content[records.HEADER] = records.download_header(download, also)
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

    def _checked(self, exchange: _Exchange, replies: list[Message]) -> list[Message]:
        passed, silent = [], set(exchange.sent)
        for reply in replies:
            # An error that the SuperLink made has its own id as the source.
            source = reply.metadata.src_node_id
            node = exchange.ids.get(reply.metadata.reply_to_message_id, source)
            silent.discard(node)
            if reply.has_error():
                if source != node:  # not a word from the node itself
                    self._broadcast.forget(node)
                self.counts["silent"] += 1
                _LOG.warning("deltawire: node %s replies with an error: %s", node, reply.error)
                passed.append((node, reply))  # strategies count failures
                continue
            try:
                self._open(exchange, node, reply)
                passed.append((node, reply))
            except Exception as error:  # whatever a client sends is its own failure
                self._refuse(node, error)
        for node in silent:
            self._broadcast.forget(node)
        if silent:
            self.counts["silent"] += len(silent)
            _LOG.warning("deltawire: no reply of nodes %s; the round goes on", sorted(silent))
        return self._alike(passed)

    def _tell(self, exchange: _Exchange, passed: list[Message], before: Counter) -> None:
        if not self._watch:
            return
        taken = [reply for reply in passed if reply.has_content()]
        since = {name: count - before[name] for name, count in self.counts.items()}
        seen = Seen(
            "train" if exchange.train else "evaluate",
            max(0, self._round),
            clients=len(set(exchange.ids.values())),
            replies=len(taken),
            metrics=_mean_metrics(taken, self._samples_key),
            **{name: since.get(name, 0) for name in _SEEN},
        )
        self.tell(seen)

    def tell(self, seen: Seen) -> None:
        """Shows it to whoever watches."""
        for watch in self._watch:
            watch(seen)

    def _refuse(self, node: int, reason: object) -> None:
        if getattr(reason, "code", None) != "State":  # of an earlier exchange: no verdict on this
            self._intake.refuse(node, self._round)
        self.counts["refused"] += 1
        self.refused.append((self._round, node, str(reason)))
        text = "deltawire: reply of node %s dropped in round %s: %s"
        _LOG.warning(text, node, self._round, reason)

    def _open(self, exchange: _Exchange, node: int, reply: Message) -> None:
        """Checks a reply and puts plain arrays in it."""
        version = exchange.sent.pop(node, None)
        fields = records.fields_of(reply.content)
        if fields is None:
            raise make_error(
                "Mismatch", "no header: the client app has no deltawire.flower.mod in mods=[...]"
            )
        if version is not None:  # whatever becomes of the reply: its client says what it has
            self._broadcast.confirm(node, fields.get("version"))
        said = (fields.get("round"), fields.get("version"))
        if version is None or said != (max(0, self._round), version):
            raise make_error(
                "State",
                f"it is of round {said[0]!r}, version {said[1]!r}; due is round {self._round}, "
                f"version {version}",
            )
        samples = self._samples_of(reply.content, needed=exchange.train)
        del reply.content[records.HEADER]
        if exchange.train:
            self._unpack(exchange, node, reply.content, fields, samples)

    def _unpack(self, exchange, node: int, content: RecordDict, fields: dict, samples: int) -> None:
        name, record = _only_record(content)
        frame = records.frame_of(record)
        others = {key: array for key, array in record.items() if key != records.FRAME}
        _check_others(others, exchange.others)
        layout = self._broadcast.layout
        reply = records.reply_of(fields, frame, samples)
        due = (self._round, self._broadcast.version)
        update = self._intake.take(node, reply, due=due, layout=layout)
        # On top of the strategy's own model, not of what clients have of it: so what the way down
        # has left out stays in the mean of the replies.
        plain = {key: self._broadcast.source[key] + change for key, change in update.change.items()}
        content[name] = ArrayRecord(
            {
                key: Array(np.asarray(plain[key], exchange.dtypes[key]))
                if key in plain
                else others[key]
                for key in exchange.order
            }
        )
        self.counts["up_bytes"] += len(frame)
        self.counts["raw_bytes"] += self._model_bytes()

    def _samples_of(self, content: RecordDict, needed: bool) -> int:
        """A reply's sample count, checked, and capped in place."""
        found = [m for m in content.metric_records.values() if self._samples_key in m]
        if not found and not needed:
            return 1
        count = found[0][self._samples_key] if len(found) == 1 else None
        if isinstance(count, float) and math.isfinite(count) and count == int(count):
            count = int(count)
        check_samples(count, self._max_samples)
        if self._cap is not None and count > self._cap:
            found[0][self._samples_key] = self._cap
        return count

    def _alike(self, passed: list[tuple[int, Message]]) -> list[Message]:
        """Those whose records and metrics have the names of most: a strategy stops at others."""
        shapes = {id(reply): _names_of(reply) for _, reply in passed if reply.has_content()}
        if not shapes:
            return [reply for _, reply in passed]
        usual = Counter(shapes.values()).most_common(1)[0][0]
        alike = []
        for node, reply in passed:
            if shapes.get(id(reply), usual) == usual:
                alike.append(reply)
            else:
                self._refuse(node, "its records or metrics are named otherwise than the others'")
        return alike


def _mean_metrics(replies: list[Message], key: str) -> dict[str, float]:
    """Of the numbers that all replies have, weighted by their samples."""
    found = [
        {name: value for record in reply.content.metric_records.values()
         for name, value in record.items() if isinstance(value, int | float)}
        for reply in replies
    ]  # fmt: skip
    total = sum(metrics.get(key, 1) for metrics in found)
    names = [name for name in (found[0] if found else ()) if name != key]
    return {
        name: sum(metrics[name] * metrics.get(key, 1) for metrics in found) / total
        for name in names
        if all(name in metrics for metrics in found)
    }


def _only_record(content: RecordDict) -> tuple[str, ArrayRecord]:
    found = list(content.array_records.items())
    if len(found) != 1:
        raise make_error(
            "InvalidArgument", f"the message has {len(found)} ArrayRecords; deltawire carries one"
        )
    return found[0]


def _needs_full(reply: Message) -> bool:
    if not reply.has_content():
        return False
    try:
        fields = records.fields_of(reply.content)
    except RuntimeError:
        return False
    return fields is not None and fields.get("need") == "full"


def _check_others(found: dict[str, Array], due: dict[str, Array]) -> None:
    """Uncompressed arrays of a reply: the names and shapes that were sent, finite numbers."""
    values = {key: array.numpy() for key, array in found.items()}
    sent = {key: array.numpy() for key, array in due.items()}
    ordered = {key: values[key] for key in sent if key in values} | values
    check_layout(layout_of(ordered), layout_of(sent), "the reply's uncompressed part")
    for key, array in sent.items():
        if values[key].dtype.kind not in "biuf":  # averaging makes floats of integers
            raise make_error("Mismatch", f"'{key}' is {values[key].dtype}; due is {array.dtype}")
        if not np.isfinite(values[key]).all():
            raise make_error("NotFinite", f"'{key}' has values that are not finite")


def _names_of(reply: Message) -> tuple:
    content = reply.content
    metrics = [
        (name, tuple(sorted((key, isinstance(value, list)) for key, value in record.items())))
        for name, record in content.metric_records.items()
    ]
    return tuple(content.array_records), tuple(metrics)
