"""`lab.told_rate`, on real links."""

import pytest

from lab import told_rate
from lab.links import parse_link


def test_a_line_whose_rate_is_told_loses_next_to_nothing(namespaces):
    untold, told = told_rate.measure(parse_link("10mbit"), ["direct"], 1)
    assert [untold["told"], told["told"]] == [False, True]
    for row in (untold, told):
        # What a rank sends, in packets of at most 64 KiB before the line cuts them.
        assert row["segments"] > 2 * sum(told_rate.SIZES.values()) * 1.5 / 65_536
        assert len(row["ms"]) == 1
    assert told["again"] <= 0.02 * told["segments"]


def test_what_is_no_line_is_refused(capsys):
    with pytest.raises(SystemExit):
        told_rate.main(["--link", "none"])
    assert "--link a rate" in capsys.readouterr().err
