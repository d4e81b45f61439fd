"""Messages of `deltawire.rounds` as Flower's records: one Array for all frames, and a header.

The header is JSON text in a ConfigRecord; a client's header is checked field by field.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from deltawire import foreign_json
from deltawire.errors import corrupt, make_error, mismatch
from deltawire.rounds.messages import FLOATS, Download, ModelLayout, Reply, is_float

HEADER = "deltawire"  # the record
FRAME = "deltawire.frame"
# Flower puts this text into the error of a mod that reads the frame as numbers.
STYPE = "deltawire frame: deltawire.flower.mod must stand first in mods=[...]"
MOST_REPLY_CHARACTERS = 8_000  # of a client's header
_NUMBERS = ("base", "version", "digest", "round", "accepted", "refused")


def bytes_array(data: bytes) -> Array:
    """Bytes as an Array that can't be mistaken for numbers."""
    return Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)


def split(
    record: ArrayRecord, exact: frozenset[str]
) -> tuple[dict[str, np.ndarray], dict[str, Array]]:
    """(floating-point arrays, which are compressed; all others, which are sent unchanged, including
    those named in `exact`, which a strategy's averaging has turned into floats)."""
    floats, others = {}, {}
    for name, array in record.items():
        values = array.numpy()
        if is_float(values) and name not in exact:
            floats[name] = values
        else:
            others[name] = array
    return floats, others


@dataclasses.dataclass(frozen=True)
class RecordForm:
    """The form of the strategy's ArrayRecord, so that the app gets it unchanged. It is sent as
    `ModelLayout.also`: once, with the layout.

    Attributes:
        order: all names.
        dtypes: of the compressed arrays, by name; the others are sent unchanged.
    """

    order: tuple[str, ...]
    dtypes: Mapping[str, str]

    @property
    def text(self) -> str:
        """Dtypes other than float32, and the places of arrays that aren't compressed."""
        dtypes = {name: dtype for name, dtype in self.dtypes.items() if dtype != "float32"}
        others = [[at, n] for at, n in enumerate(self.order) if n not in self.dtypes]
        return json.dumps([dtypes, others], separators=(",", ":"))

    @classmethod
    def of(cls, layout: ModelLayout) -> "RecordForm":
        """Parses `text`. Raises DeltawireError, code "Corrupt", for any other."""
        order = [tensor.name for tensor in layout.tensors]
        try:
            rare, others = foreign_json.parse(layout.also)
            dtypes = dict.fromkeys(order, "float32") | rare
            for at, name in others:
                order.insert(at, name)
            right = dtypes.keys() <= set(order) and all(each in FLOATS for each in dtypes.values())
        except foreign_json.UNFIT as cause:
            raise corrupt(f"a text that is no record's form ({cause})") from cause
        if not right or len(set(order)) < len(order):
            raise corrupt("the record's form has names or dtypes that no record has")
        return cls(tuple(order), dtypes)


def packed(frames: Sequence[bytes], others: dict[str, Array]) -> ArrayRecord:
    """One Array of all frames, and the uncompressed arrays."""
    return ArrayRecord({FRAME: bytes_array(b"".join(frames)), **others})


def frame_of(record: ArrayRecord) -> bytes:
    """The bytes of a packed record; raises "Mismatch" for any other record."""
    array = record.get(FRAME)
    if array is None or array.stype != STYPE:
        raise mismatch(
            "the arrays are not a deltawire frame; the mod must come first in mods=[...]"
        )
    return array.data


def download_header(download: Download, also: dict) -> ConfigRecord:
    """The header of a download: all but its frames' bytes."""
    fields = {
        "kind": download.kind,
        "lengths": [len(frame) for frame in download.frames],
        "spec": download.spec,
        **{name: getattr(download, name) for name in _NUMBERS},
        "layout_id": download.layout_id,
        **also,
    }
    if download.weights != "float32":
        fields["weights"] = download.weights
    layout = {} if download.layout is None else {"layout": download.layout.text}
    return ConfigRecord({"header": json.dumps(fields, separators=(",", ":")), **layout})


def download_of(content: RecordDict, fields: dict) -> Download:
    """The download from a message's header and its ArrayRecord.

    Raises:
        DeltawireError: "Corrupt": the header's fields are not those of a download, or the frames'
            lengths not those of the bytes.
    """
    name, samples = fields.get("record"), fields.get("samples")
    record = content.get(name) if isinstance(name, str) else None
    if not isinstance(record, ArrayRecord) or not isinstance(samples, str):
        raise corrupt("the header of the download names no arrays, or no samples")
    data, frames, start = frame_of(record), [], 0
    lengths, kind = fields.get("lengths"), fields.get("kind")
    numbers = {name: fields.get(name) for name in _NUMBERS}
    texts = (kind, fields.get("spec"), fields.get("layout_id"), fields.get("weights", "float32"))
    if not (
        isinstance(lengths, list)
        and all(type(length) is int and length >= 0 for length in lengths)
        and sum(lengths) == len(data)
        and all(type(number) is int for number in numbers.values())
        and all(isinstance(text, str) for text in texts)
    ):
        raise corrupt("the header of the download doesn't fit its frames")
    for length in lengths:
        frames.append(data[start : start + length])
        start += length
    text = content[HEADER].get("layout")
    return Download(
        kind,
        tuple(frames),
        fields["spec"],
        layout_id=fields["layout_id"],
        layout=None if text is None else ModelLayout.from_text(text),
        weights=texts[-1],
        **numbers,
    )


def header_record(fields: dict) -> ConfigRecord:
    """A record of a header's fields, for a reply or a client's state."""
    return ConfigRecord({"header": json.dumps(fields, separators=(",", ":"))})


def header_bytes(content: RecordDict) -> int:
    """The size of a message's header, including the layout if it is sent."""
    return sum(len(text.encode()) for text in content[HEADER].values())


def fields_of(content: RecordDict) -> dict | None:
    """A header's fields, None if there is no header; raises "Corrupt" for anything else."""
    record = content.get(HEADER)
    if record is None:
        return None
    text = record.get("header") if isinstance(record, ConfigRecord) else None
    try:
        fields = foreign_json.parse(text) if isinstance(text, str) else None
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise corrupt("the header of the message is not the JSON that it should be")
    return fields


def reply_fields(content: RecordDict) -> dict | None:
    """`fields_of` a client's message; raises "Limit", unread, if it is too long."""
    record = content.get(HEADER)
    if isinstance(record, ConfigRecord):
        text = record.get("header")
        if len(record) != 1 or (isinstance(text, str) and len(text) > MOST_REPLY_CHARACTERS):
            raise make_error("Limit", "the header of the reply is too long")
    return fields_of(content)


def reply_of(fields: dict, frame: bytes, samples: object) -> Reply:
    """A client's reply, with the types of its fields checked."""
    spec, numbers = fields.get("spec"), (fields.get("round"), fields.get("version"))
    if not isinstance(spec, str) or not all(type(number) is int for number in numbers):
        raise corrupt("the header of the reply lacks spec, round or version")
    return Reply(frame, spec, *numbers, samples)
