"""`lab.probes.link_pacing`, on real links."""

import pytest

from lab.probes import link_pacing
from lab.ranks.links import parse_link


def test_a_paced_line_loses_next_to_nothing(namespaces):
    unpaced, paced = link_pacing.measure(parse_link("10mbit"), ["direct"], 1)
    assert [unpaced["paced"], paced["paced"]] == [False, True]
    for row in (unpaced, paced):
        # A rank's bytes, in packets of at most 64 KiB, before the link cuts them into smaller ones.
        assert row["segments"] > 2 * sum(link_pacing.SIZES.values()) * 1.5 / 65_536
        assert len(row["ms"]) == 1
    assert paced["again"] <= 0.02 * paced["segments"]


def test_a_link_without_a_rate_is_refused(capsys):
    with pytest.raises(SystemExit):
        link_pacing.main(["--link", "none"])
    assert "--link a rate" in capsys.readouterr().err
