"""`lab.probes.live_weights`, on real links: each fault is named, and nobody reads a mixture."""

import pytest

from lab.probes.live_weights import __main__ as probe
from lab.probes.live_weights.rank import CORRUPTED, FULL, KILLED, TAMPERED

SHORT = ["--versions", "12", "--interval", "0.4", "--subscribers", "5", "--weights", "100000"]


def test_a_short_run(namespaces, capsys):
    given = probe.parse([*SHORT, "--fanouts", "2"])
    course = probe.measure(given, 2)
    assert not probe.mixtures(course)
    assert set(course.summaries) == {1, 2, 3, 4, 5}
    assert all(course.lags(rank)[12] >= 0 for rank in course.updated)
    assert "its checksum is wrong" in "".join(course.said[CORRUPTED])
    assert "No space left on device" in "".join(course.said[FULL])
    assert "raised Mismatch" in "".join(course.said[TAMPERED])
    assert 0 < len(course.updated[KILLED]) < 14
    probe.show(course, 2, given.link)
    said = capsys.readouterr().out
    assert "| 2 | killed, started again |" in said and "Mixtures of versions: 0 in" in said


def test_too_few_versions_are_refused(capsys):
    with pytest.raises(SystemExit):
        probe.main(["--versions", "3"])
    assert "12 versions" in capsys.readouterr().err
