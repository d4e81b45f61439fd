"""Checks of a reply apart from its frame: a strategy trusts all replies that it gets."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from deltawire.errors import invalid, make_error, mismatch
from deltawire.rounds.intake import check_samples
from deltawire.rounds.limits import brief
from deltawire.rounds.messages import check_layout, layout_of

_MOST_NUMBERS = 10_000  # in a reply's metrics, including the elements of lists
_MOST_NAME_CHARACTERS = 200


def only_record(content: RecordDict) -> tuple[str, ArrayRecord]:
    """The name and the value of a message's one ArrayRecord."""
    found = list(content.array_records.items())
    if len(found) != 1:
        raise invalid(f"the message has {len(found)} ArrayRecords; deltawire carries one")
    return found[0]


def check_metrics(records: Iterable[MetricRecord]) -> None:
    """Raises for metrics that would spoil the mean ("NotFinite", with the metric's name) or exhaust
    the server's memory ("Limit")."""
    left = _MOST_NUMBERS
    for record in records:
        for name, value in record.items():
            values = value if isinstance(value, list) else [value]
            left -= max(1, len(values))
            if left < 0 or len(name) > _MOST_NAME_CHARACTERS:
                raise make_error(
                    "Limit",
                    f"its metrics are more than {_MOST_NUMBERS:,} numbers, or have names of more "
                    f"than {_MOST_NAME_CHARACTERS} characters",
                )
            for number in values:
                if not abs(number) <= sys.float_info.max:
                    raise make_error(
                        "NotFinite",
                        f"metric '{name}' is {brief(number, 20)}; return finite metrics",
                    )


def samples_of(records: Iterable[MetricRecord], key: str, most: int, needed: bool) -> int:
    """A reply's sample count, checked; 1 if it has none and needs none."""
    found = [record[key] for record in records if key in record]
    if not found and not needed:
        return 1
    count = found[0] if len(found) == 1 else None
    if isinstance(count, float) and count.is_integer():
        count = int(count)
    check_samples(count, most)
    return count


def check_others(found: Mapping[str, Array], due: Mapping[str, Array]) -> None:
    """Uncompressed arrays of a reply: the names and shapes that were sent, finite numbers."""
    strange, sent = found.keys() - due.keys(), {key: array.numpy() for key, array in due.items()}
    if strange:  # they are not opened, because they may be huge
        names = [brief(name, 40) for name in sorted(strange)[:3]]
        raise mismatch(
            f"the reply's uncompressed part has other tensors than the model: strange {names}; "
            "return the tensors that came"
        )
    values = {key: found[key].numpy() for key in sent if key in found}
    check_layout(layout_of(values), layout_of(sent), "the reply's uncompressed part")
    for key, array in sent.items():
        if values[key].dtype.kind not in "biuf":  # averaging makes floats of integers
            raise mismatch(f"'{key}' is {values[key].dtype}; due is {array.dtype}")
        if not np.isfinite(values[key]).all():
            raise make_error("NotFinite", f"'{key}' has values that are not finite")


def unlike_most(contents: Mapping[int, RecordDict]) -> list[int]:
    """The nodes whose records or metrics have other names than most replies', or lists for numbers:
    they would make a strategy fail."""
    forms = {node: _form_of(content) for node, content in contents.items()}
    if not forms:
        return []
    usual = Counter(forms.values()).most_common(1)[0][0]
    return [node for node, form in forms.items() if form != usual]


def _form_of(content: RecordDict) -> tuple:
    metrics = [
        (name, tuple(sorted((key, isinstance(value, list)) for key, value in record.items())))
        for name, record in content.metric_records.items()
    ]  # fmt: skip
    return tuple(content.array_records), tuple(metrics)


def leave_out_uneven_lists(contents: list[RecordDict]) -> list[str]:
    """Takes the metrics out of all replies that are lists of different lengths, one number for each
    of a client's classes, say: no strategy can average them. Returns their names."""
    lengths = defaultdict(set)
    for content in contents:
        for name, record in content.metric_records.items():
            for key, value in record.items():
                if isinstance(value, list):
                    lengths[name, key].add(len(value))
    uneven = [place for place, found in lengths.items() if len(found) > 1]
    for name, key in uneven:
        for content in contents:
            del content.metric_records[name][key]
    return sorted({brief(key, 40) for _, key in uneven})


def mean_metrics(contents: list[RecordDict], key: str) -> dict[str, float]:
    """The means of the metrics that all replies have, weighted by their samples."""
    found = [
        {name: value for record in content.metric_records.values()
         for name, value in record.items() if isinstance(value, int | float)}
        for content in contents
    ]  # fmt: skip
    total = sum(metrics.get(key, 1) for metrics in found)
    names = [name for name in (found[0] if found else ()) if name != key]
    return {
        name: sum(metrics[name] * (metrics.get(key, 1) / total) for metrics in found)
        for name in names
        if all(name in metrics for metrics in found)
    }
