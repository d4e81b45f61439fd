"""`lab.probes.link_pacing`, on real links."""

import pytest

from lab.probes import link_pacing
from lab.ranks.links import parse_link


def test_a_line_whose_rate_is_told_loses_next_to_nothing(namespaces):
    untold, told = link_pacing.measure(parse_link("10mbit"), ["direct"], 1)
    assert [untold["told"], told["told"]] == [False, True]
    for row in (untold, told):
        # What a rank sends, in packets of at most 64 KiB before the line cuts them.
        assert row["segments"] > 2 * sum(link_pacing.SIZES.values()) * 1.5 / 65_536
        assert len(row["ms"]) == 1
    assert told["again"] <= 0.02 * told["segments"]


def test_what_is_no_line_is_refused(capsys):
    with pytest.raises(SystemExit):
        link_pacing.main(["--link", "none"])
    assert "--link a rate" in capsys.readouterr().err
