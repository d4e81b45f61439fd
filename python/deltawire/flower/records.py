"""Messages of `deltawire.rounds` as Flower's records: one Array for all frames, and a header.

The header is JSON text in a ConfigRecord, and what a client says in it is checked field by field.
"""

import json
from collections.abc import Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from deltawire.errors import make_error
from deltawire.rounds.messages import Download, Reply, TensorLayout, is_float

HEADER = "deltawire"  # the record
STYPE = "deltawire.frame"
FRAME = "deltawire.frame"
_MOST_HEADER_CHARACTERS = 8_000


def bytes_array(data: bytes) -> Array:
    """Bytes as an Array that nobody takes for numbers."""
    return Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)


def split(
    record: ArrayRecord, exact: frozenset[str]
) -> tuple[dict[str, np.ndarray], dict[str, Array]]:
    """(floating-point arrays, which are compressed; the others, which travel as they are, and those
    named in `exact`, which are no longer integers once a strategy has averaged them)."""
    floats, others = {}, {}
    for name, array in record.items():
        values = array.numpy()
        if is_float(values) and name not in exact:
            floats[name] = values
        else:
            others[name] = array
    return floats, others


def packed(frames: Sequence[bytes], others: dict[str, Array]) -> ArrayRecord:
    """One Array of all frames, and the uncompressed arrays."""
    return ArrayRecord({FRAME: bytes_array(b"".join(frames)), **others})


def frame_of(record: ArrayRecord) -> bytes:
    """The bytes of a packed record; raises "Mismatch" where it is none."""
    array = record.get(FRAME)
    if array is None or array.stype != STYPE:
        raise make_error(
            "Mismatch", "the arrays are no deltawire frame; the mod must stand first in mods=[...]"
        )
    return array.data


def download_header(download: Download, also: dict) -> ConfigRecord:
    """All of a download but its frames' bytes."""
    fields = {
        "kind": download.kind,
        "lengths": [len(frame) for frame in download.frames],
        "spec": download.spec,
        "base": download.base,
        "version": download.version,
        "digest": download.digest,
        "layout": [[tensor.name, list(tensor.shape)] for tensor in download.layout],
        "round": download.round,
        "accepted": download.accepted,
        "refused": download.refused,
        **also,
    }
    return ConfigRecord({"header": json.dumps(fields)})


def download_of(fields: dict, record: ArrayRecord) -> Download:
    """The download that a header and an ArrayRecord make."""
    data, frames, start = frame_of(record), [], 0
    for length in fields["lengths"]:
        frames.append(data[start : start + length])
        start += length
    layout = layout_from(fields["layout"])
    numbers = {key: fields[key] for key in ("base", "version", "digest", "round")}
    verdicts = {key: fields[key] for key in ("accepted", "refused")}
    return Download(
        fields["kind"], tuple(frames), fields["spec"], layout=layout, **numbers, **verdicts
    )


def layout_from(pairs: list) -> tuple[TensorLayout, ...]:
    """What `download_header` wrote."""
    return tuple(TensorLayout(name, tuple(shape)) for name, shape in pairs)


def header_record(fields: dict) -> ConfigRecord:
    """Of a reply, or of a client's state."""
    return ConfigRecord({"header": json.dumps(fields)})


def fields_of(content: RecordDict) -> dict | None:
    """A header's fields, None where there is none; raises "Corrupt" for anything else."""
    record = content.get(HEADER)
    if record is None:
        return None
    text = record.get("header") if isinstance(record, ConfigRecord) else None
    try:
        fields = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise make_error("Corrupt", "the header of the message is not the JSON that it should be")
    return fields


def reply_of(fields: dict, frame: bytes, samples: object) -> Reply:
    """A client's reply, its fields of the types that they must have."""
    if len(json.dumps(fields)) > _MOST_HEADER_CHARACTERS:
        raise make_error("Limit", "the header of the reply is too long")
    spec, numbers = fields.get("spec"), (fields.get("round"), fields.get("version"))
    if not isinstance(spec, str) or not all(type(number) is int for number in numbers):
        raise make_error("Corrupt", "the header of the reply lacks spec, round or version")
    return Reply(frame, spec, *numbers, samples)
