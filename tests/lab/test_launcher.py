"""The launcher of ranks: messages, failures, restarts, links and ends."""

import os
import signal
import time

import pytest

pytest.importorskip("torch")

from lab.ranks import launcher  # noqa: E402
from lab.ranks.launcher import Launcher, RankEnded, RanksFailed  # noqa: E402
from lab.ranks.namespaces import Namespaces, interface_bytes  # noqa: E402
from lab.ranks.rank import Line, Place, process_group  # noqa: E402


def echo(place: Place, line: Line, word: str) -> None:
    """Says where it is, then answers until the line ends."""
    line.send((word, place.rank, place.ranks, os.getpid()))
    while True:
        line.send(line.receive() * 2)


def count_to_three(place: Place, line: Line) -> None:
    for number in range(3):
        line.send(number + 10 * place.rank)


def fail(place: Place, line: Line, victim: int) -> None:
    if place.rank == victim:
        raise ValueError("no such thing")
    time.sleep(60)


def sum_of_ranks(place: Place, line: Line) -> None:
    import torch
    import torch.distributed as dist

    with process_group(place, 60):
        total = torch.tensor(float(place.rank + 1))
        dist.all_reduce(total)
        dist.barrier()
    traffic = interface_bytes(place.interface)
    line.send((total.item(), torch.get_num_threads(), traffic))


def test_a_rank_that_starts_after_its_launcher_has_gone_ends_quietly(tmp_path):
    """Ctrl-C may come while the fork server starts a rank."""
    ours, theirs = launcher.context.Pipe()
    place, log = Place(0, 1, "unused"), tmp_path / "gone" / "rank-0.log"
    rank = launcher.context.Process(target=launcher._run, args=(echo, place, theirs, log, ("?",)))
    rank.start()
    theirs.close()
    rank.join(60)
    assert rank.exitcode == 0
    with pytest.raises(EOFError):
        ours.recv()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def first_messages(ranks: Launcher, count: int) -> dict:
    """By rank. Each rank is asked for one, since it may end before another sends its own."""
    return dict(ranks.receive(100, among={rank}) for rank in range(count))


def test_messages_go_both_ways_and_no_rank_is_left():
    with Launcher(echo, 2) as ranks:
        ranks.start("hello")
        words = first_messages(ranks, 2)
        assert [words[rank][:3] for rank in range(2)] == [("hello", 0, 2), ("hello", 1, 2)]
        ranks.send(4)
        answers = sorted(ranks.receive(100) for _ in range(2))
        assert answers == [(0, 8), (1, 8)]
        # Ctrl-C goes to the launcher's session, and a rank isn't in it.
        assert os.getsid(words[0][3]) == words[0][3] != os.getsid(0)
    assert not any(is_alive(word[3]) for word in words.values())


def test_rank_0s_messages_end_when_it_ends_well():
    with Launcher(count_to_three, 2) as ranks:
        ranks.start()
        assert list(ranks.messages(100)) == [0, 1, 2]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_fails_is_named_with_the_last_line_of_its_log(victim: int):
    with Launcher(fail, 2) as ranks:
        ranks.start(victim)
        reason = f"rank {victim} ended with status 1: ValueError: no such thing"
        with pytest.raises(RanksFailed, match=f"^{reason}$"):
            list(ranks.messages(100))
        assert ranks.first_end(10) == reason


def test_a_rank_that_ends_before_it_begins_is_named():
    """Ctrl-C may come before it has opened its log."""
    with Launcher(echo, 1) as ranks:
        ranks.start("never said")
        ranks._processes[0].kill()
        with pytest.raises(RankEnded, match="rank 0 ended with signal SIGKILL"):
            for _ in range(9):
                ranks.receive(20)


def test_a_killed_rank_is_named_and_all_may_be_started_again():
    with Launcher(echo, 2) as ranks:
        ranks.start("first")
        words = first_messages(ranks, 2)
        os.kill(words[1][3], signal.SIGKILL)
        with pytest.raises(RankEnded, match="^rank 1 ended with signal SIGKILL$") as ended:
            ranks.receive(100)
        assert (ended.value.rank, ended.value.status) == (1, -signal.SIGKILL)
        ranks.stop()
        ranks.start("second")
        assert [word[0] for word in first_messages(ranks, 2).values()] == ["second"] * 2


def test_silence_is_an_error_that_names_the_ranks():
    with Launcher(echo, 3) as ranks:
        ranks.start("hello")
        first_messages(ranks, 3)
        with pytest.raises(RanksFailed, match=r"^no message for 0.1 s from rank\(s\) 1, 2$"):
            ranks.receive(0.1, among={2, 1})


def test_ranks_that_hang_are_killed():
    with Launcher(echo, 2) as ranks:
        ranks.start("hello")
        words = first_messages(ranks, 2)
        for word in words.values():
            os.kill(word[3], signal.SIGSTOP)
        ranks.stop()
        assert not any(is_alive(word[3]) for word in words.values())
        assert not ranks.running


def test_ranks_meet_on_the_loopback_again_after_a_stop():
    with Launcher(sum_of_ranks, 2) as ranks:
        for _ in range(2):
            ranks.start()
            totals = first_messages(ranks, 2)
            assert {total for total, _, _ in totals.values()} == {3.0}
            assert {threads for _, threads, _ in totals.values()} == {1}
            ranks.stop()


def test_ranks_meet_over_their_links(namespaces):
    with Namespaces(2, 12.5e6) as network, Launcher(sum_of_ranks, 2, network) as ranks:
        ranks.start()
        totals = first_messages(ranks, 2)
        assert {total for total, _, _ in totals.values()} == {3.0}
        for _, _, (sent, received) in totals.values():
            assert 100 < sent < 1e6 and 100 < received < 1e6


def test_the_fork_server_computes_with_one_thread_and_misses_ctrl_c(monkeypatch):
    seen = {}

    def ensure_running():
        seen["threads"] = os.environ["OMP_NUM_THREADS"]
        seen["handler"] = signal.getsignal(signal.SIGINT)

    monkeypatch.setattr(launcher, "PRELOADED", ["math"])
    monkeypatch.setattr(launcher.forkserver, "ensure_running", ensure_running)
    monkeypatch.setattr(launcher.context, "set_forkserver_preload", lambda modules: None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = signal.getsignal(signal.SIGINT)
    launcher._start_fork_server()
    assert seen == {"threads": "1", "handler": signal.SIG_IGN}
    assert "OMP_NUM_THREADS" not in os.environ
    assert signal.getsignal(signal.SIGINT) is before
