"""The client's side: a mod that decodes incoming messages and encodes replies."""

import logging
import sys
from collections.abc import Callable

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict

from deltawire.channel import Channel
from deltawire.errors import DeltawireError, corrupt, invalid
from deltawire.flower import records
from deltawire.flower.reply_checks import check_metrics, only_record
from deltawire.rounds.client import Client
from deltawire.rounds.messages import PATCHES

_STATE_ARRAYS = f"{records.HEADER}.state"
_RANKS = 65_535
_BYTES = ("model", "residual", "pending")

Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]


def mod(spec: str, *, min_elements: int = 256, error_feedback: bool = True) -> Mod:
    """A mod for `ClientApp(mods=[...])`; it must come first in the list, so that other mods see
    plain arrays.

    Mods before it are named in a warning; one that reads arrays fails with an error that says so.

    The app gets the model, and returns it trained, as always. The reply's floating-point arrays are
    sent as one frame: the change plus the residual. Others (counters) are sent unchanged. The
    model, the residual and the last frame are kept in Flower's `Context.state`; if that is lost,
    the mod asks for the whole model, and gets it in the same exchange.

    Args:
        spec: codec of the updates, e.g. "sbc:p=1%", or rules.
        min_elements: arrays below this many elements are sent uncompressed; as `Compressed`'s.
        error_feedback: False: what a frame leaves out is lost.

    Raises:
        InvalidArgumentError (a ValueError): a bad spec, immediately.

    In a round, the client replies with an error if the trained model has other arrays or shapes
    than the one that it got, values or metrics are not finite ("NotFinite"), or there is no sample
    count. Then the client's state does not change.
    Thread rule: any.
    """
    Channel(spec, min_elements=min_elements)
    looked = False

    def deltawire_mod(message: Message, context: Context, call_next) -> Message:
        nonlocal looked
        fields = records.fields_of(message.content) if message.has_content() else None
        if fields is None:
            if message.has_content() and message.content.array_records:
                logging.getLogger("flwr").warning(
                    "deltawire: the server sends plain arrays, so the reply is not compressed; "
                    "wrap its strategy: deltawire.flower.Compressed(...)"
                )
            return call_next(message, context)
        if not looked:
            looked = True
            _warn_of_mods_before(deltawire_mod)
        rank = context.node_id % _RANKS
        options = {"min_elements": min_elements, "error_feedback": error_feedback, "rank": rank}
        client = _loaded(Client(spec, **options), context)
        return _exchanged(client, fields, message, context, call_next)

    return deltawire_mod


def _warn_of_mods_before(mod_: Mod) -> None:
    """Warns of mods before this one: they are on the stack, since Flower calls each mod from a
    function of its own, in which the mod is `_mod`."""
    before, frame = [], sys._getframe(2)
    while frame is not None:
        called = frame.f_locals.get("_mod") if frame.f_code.co_name == "new_ffn" else None
        if called is not None and called is not mod_:
            before.insert(0, getattr(called, "__name__", repr(called)))
        frame = frame.f_back
    if before:
        logging.getLogger("flwr").warning(
            "deltawire: mods %s stand before deltawire.flower.mod in mods=[...], and see frames in "
            "place of arrays; put deltawire.flower.mod first",
            before,
        )


def _exchanged(client: Client, fields: dict, message: Message, context: Context, call_next):
    download = records.download_of(message.content, fields)
    name = fields["record"]
    packed = message.content.array_records[name]
    try:
        model = client.receive(download)
    except DeltawireError as error:
        whole = download.kind == "full" and download.layout is not None
        if error.code != "State" or whole:
            raise
        need = records.header_record({"need": "full", "why": str(error)})
        return Message(RecordDict({records.HEADER: need}), reply_to=message)
    form = records.RecordForm.of(client.layout)
    message.content[name] = _plain(model, form, packed)
    del message.content[records.HEADER]
    reply = call_next(message, context)
    if reply.has_error():
        return reply  # the state does not change, and neither does what the server knows of it
    check_metrics(reply.content.metric_records.values())
    said = {"version": download.version, "round": download.round}
    if "patches" in fields:  # the server may send some
        said["patches"] = PATCHES
    if reply.content.array_records:
        said["spec"] = _encode(client, reply.content, fields["samples"], form)
    reply.content[records.HEADER] = records.header_record(said)
    _save(client, context)  # last: an exception before this leaves the state as it was
    return reply


def _plain(model: dict, form: records.RecordForm, packed: ArrayRecord) -> ArrayRecord:
    """The record as the strategy sent it."""
    missing = set(form.order) - set(model) - set(packed)
    if missing:
        raise corrupt(f"the message lacks the arrays {sorted(missing)[:3]}")
    return ArrayRecord(
        {
            name: Array(model[name].astype(form.dtypes[name])) if name in model else packed[name]
            for name in form.order
        }
    )


def _encode(client: Client, content: RecordDict, key: str, form: records.RecordForm) -> str:
    """Replaces the reply's arrays by one frame; returns its spec."""
    name, record = only_record(content)
    floats, others = records.split(record, frozenset(form.order) - frozenset(form.dtypes))
    samples = [metrics[key] for metrics in content.metric_records.values() if key in metrics]
    if len(samples) != 1:
        raise invalid(f"the reply needs one metric '{key}', its sample count")
    count = int(samples[0]) if samples[0] == samples[0] // 1 else samples[0]
    reply = client.reply(floats, count)
    content[name] = records.packed([reply.frame], others)
    return reply.spec


def _save(client: Client, context: Context) -> None:
    state = client.state()
    context.state[_STATE_ARRAYS] = ArrayRecord(
        {key: records.bytes_array(state.pop(key)) for key in _BYTES}
    )
    context.state[records.HEADER] = records.header_record(state)


def _loaded(client: Client, context: Context) -> Client:
    """A client with the state of the last message; without one it needs the whole model."""
    if _STATE_ARRAYS not in context.state:
        return client
    arrays = context.state.array_records[_STATE_ARRAYS]
    state = records.fields_of(context.state)
    client.load_state({**state, **{key: arrays[key].data for key in _BYTES}})
    return client
