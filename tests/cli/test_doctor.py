"""`deltawire doctor` between two network namespaces with faults, each of which it must name. What
it makes of findings, and its messages, are tested in apps/doctor."""

import ctypes
import json
import os
import platform
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cli_program import BINARY, ROOT, assert_refused, must_run, run
from hosts import hosts
from ports import kept_port

from lab.ranks.namespaces import NamespaceError, Namespaces, enter_namespace, run_command

TOKEN = "a token of the doctor's tests"
DEADLINE = 60
SECOND = "10.71.0.2"
# A host's name and /etc/hosts of one process.
NAMED = """
echo "$1" > /proc/sys/kernel/hostname && mount --bind "$2" /etc/hosts || exit 77
shift 2; exec "$@"
"""


class Site:
    """A rank of a network on which doctors run, with a name that means `address`."""

    def __init__(self, network: Namespaces, rank: int, folder: Path, address: str | None = None):
        self.network, self.rank = network, rank
        self.name = f"site{rank}"
        self.hosts = folder / f"hosts-{self.name}"
        self.hosts.write_text(f"{address or network.address(rank)} {self.name}\n")

    def start(
        self,
        *words: object,
        binary: Path = BINARY,
        token: str = TOKEN,
        also: Callable[[], None] = lambda: None,
    ) -> subprocess.Popen:
        def enter() -> None:
            enter_namespace(self.network.name(self.rank))
            also()

        command = ["unshare", "--mount", "--uts", "sh", "-c", NAMED, "sh", self.name, self.hosts]
        return subprocess.Popen(
            [*map(str, command), str(binary), "doctor", *map(str, words)],
            env={**os.environ, "DELTAWIRE_TOKEN": token},
            preexec_fn=enter,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def serving(self, **how) -> Iterator[None]:
        process = self.start("--serve", **how)
        try:
            first = process.stdout.readline()
            assert first.startswith("waits at 0.0.0.0:29600"), first + process.stderr.read()
            yield
        finally:
            process.kill()
            process.communicate()

    def examine(self, *words: object, **how) -> tuple[int, dict]:
        """The exit status, and the findings."""
        process = self.start(*words, "--json", "-", **how)
        out, said = process.communicate(timeout=DEADLINE)
        assert process.returncode in (0, 1), said
        findings = json.loads(out)
        wrong = [advice for advice in findings["advice"] if advice["is_wrong"]]
        assert (process.returncode == 1) == bool(wrong), (said, wrong)
        return process.returncode, findings


def texts(findings: dict, is_wrong: bool) -> str:
    return "\n".join(each["what"] for each in findings["advice"] if each["is_wrong"] == is_wrong)


def forbid_bbr() -> None:
    """From now on this process gets EPERM where it asks for a congestion control."""
    setsockopt = {"x86_64": 54, "aarch64": 208}[platform.machine()]
    load, equal, give = 0x20, 0x15, 0x06
    # Of seccomp_data: the call's number at 0, its second and third argument at 24 and 32.
    steps = [(load, 0, 0, 0), (equal, 0, 5, setsockopt), (load, 0, 0, 24), (equal, 0, 3, 6)]
    steps += [(load, 0, 0, 32), (equal, 0, 1, 13), (give, 0, 0, 0x50001), (give, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(program)
    head = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, head, 0, 0) == 0


@contextmanager
def group_of_one_processor() -> Iterator[Callable[[], None] | None]:
    """What a process calls to join a control group with one processor's quota; None where this
    machine lets nobody make one."""
    for mount, quota in (("cpu", "cpu.cfs_quota_us"), ("", "cpu.max")):
        group = Path("/sys/fs/cgroup") / mount / f"deltawire-{os.getpid()}"
        try:
            group.mkdir()
            (group / quota).write_text("100000")
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        try:
            yield lambda procs=group / "cgroup.procs": procs.write_text(str(os.getpid()))
        finally:
            group.rmdir()
        return
    yield None


def test_a_machine_alone():
    done = run("doctor", "--json", "-")
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["lines"] == [] and found["here"]["processors"] >= 1
    version = must_run("--version").decode().split()[1]
    assert found["here"]["version"] == version
    assert "torchrun --nnodes=2" in found["run"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--port", "70000"], "--port"),
        (["10.0.0.1:0"], "HOST:PORT"),
        (["--serve", "10.0.0.1"], "leave the hosts and --json out"),
        (["--serve", "--json", "f"], "leave the hosts and --json out"),
        (["--encryption", "maybe"], "encryption"),
        (["--format", "xml"], "--format"),
    ],
)
def test_requests_that_are_none(words: list[str], part: str):
    assert_refused(2, [part], "doctor", *words)


def test_it_prints_the_files_that_start_a_job():
    script = (ROOT / "examples/trainers/slurm.sh").read_text()
    assert script in must_run("doctor", "--format", "sbatch").decode()
    assert script.replace("--nodes=2", "--nodes=7") in must_run(
        "doctor", "--format", "sbatch", "--ranks", 7
    ).decode().replace("\r", "")
    seven = must_run("doctor", "--format", "jobset", "--ranks", 7).decode()
    for part in ("parallelism: 7", "completions: 7", "--nnodes=7"):
        assert part in seven
    jobset = (ROOT / "examples/clusters/jobset.yaml").read_text()
    assert jobset in must_run("doctor", "--format", "jobset").decode()


def test_who_is_not_there_and_who_may_not_come(tmp_path: Path):
    with hosts(2, None) as network:
        first, second = Site(network, 0, tmp_path), Site(network, 1, tmp_path)
        _, found = first.examine(SECOND)
        assert f"nobody listens at {SECOND}:29600" in texts(found, True)
        assert "doctor --serve" in found["advice"][0]["remedy"]
        with second.serving():
            _, found = first.examine(SECOND, token="another token than theirs")
            assert f"the process at {SECOND}:29600 refuses this one" in texts(found, True)
            assert "DELTAWIRE_TOKEN" in found["advice"][0]["remedy"]
            status, found = first.examine(SECOND)
            assert status == 0, texts(found, True)
            assert found["lines"][0]["is_encrypted"]
            block(network, 1, 29600)
            _, found = first.examine(SECOND)
            assert f"no answer from {SECOND}:29600" in texts(found, True)


def block(network: Namespaces, rank: int, port: int) -> None:
    """Drops what comes to that port of the rank, as a firewall does."""
    other = network.address(1 - rank)
    policy = ["xfrm", "policy", "add", "src", other, "dst", network.address(rank), "proto", "tcp"]
    policy += ["dport", str(port), "dir", "in", "action", "block"]
    try:
        run_command("ip", "-n", network.name(rank), *policy)
    except NamespaceError as cause:
        pytest.skip(str(cause))


def test_several_faults_at_once_are_all_named(tmp_path: Path):
    older = tmp_path / "deltawire"
    version = must_run("--version").split()[1]
    other = b"0.0.1".ljust(len(version))
    older.write_bytes(BINARY.read_bytes().replace(version + b"\0", other + b"\0"))
    older.chmod(0o755)
    with hosts(2, 2.5e6) as network, group_of_one_processor() as join:
        first, second = Site(network, 0, tmp_path, "127.0.1.1"), Site(network, 1, tmp_path)
        block(network, 0, 29700)
        with second.serving(binary=older):
            status, found = first.examine(SECOND, "--port", 29700, also=join or (lambda: None))
    wrong, notes = texts(found, True), texts(found, False)
    assert status == 1
    assert 'this machine\'s name "site0" means 127.0.1.1' in wrong
    assert f"{SECOND}:29600 can't call back: no answer from 10.71.0.1:29700" in wrong
    assert f"deltawire is {version.decode()} here and 0.0.1 at {SECOND}:29600" in wrong
    if join is not None and os.cpu_count() > 1:
        assert f"may use 1 of {os.cpu_count()} processors" in notes
    line = found["lines"][0]
    for way in ("out", "back"):
        assert 0.5e6 < line[way]["bytes_per_second"] < 3e6, "20 Mbit/s"
    assert found["codec"] is not None and found["reason"]
    assert f"--master-addr={network.address(0)}" in found["run"]


def test_packets_that_are_too_large_for_the_way(tmp_path: Path):
    with hosts(2, None) as network:
        first, second = Site(network, 0, tmp_path), Site(network, 1, tmp_path)
        shape = ["root", "tbf", "rate", "1gbit", "burst", "1000", "latency", "100ms"]
        run_command("tc", "-n", network.name(1), "qdisc", "replace", "dev", "link0", *shape)
        with second.serving():
            _, found = first.examine(SECOND)
    assert f"long ones don't, from {SECOND}:29600" in texts(found, True)
    assert "tcp_mtu_probing" in found["advice"][0]["remedy"]
    assert found["lines"][0]["out"]["bytes_per_second"] > 0


def test_a_long_line_that_loses_packets_without_bbr(tmp_path: Path):
    delay_line = BINARY.parent / "bench" / "delay_line"
    if not delay_line.exists() or not Path("/dev/net/tun").exists():
        pytest.skip("a long line needs bench/delay_line and /dev/net/tun")
    with hosts(2, None) as network:
        names = [network.name(rank) for rank in (0, 1)]
        carrier = subprocess.Popen([delay_line, *names, "20", "0.02", "20"], stdout=subprocess.PIPE)
        try:
            assert carrier.stdout.readline() == b"ready\n"
            for name, own, other in zip(names, ("10.77.0.1", "10.77.0.2"), ("2", "1"), strict=True):
                at = ["address", "add", own, "peer", f"10.77.0.{other}", "dev", "line"]
                run_command("ip", "-n", name, *at)
                run_command("ip", "-n", name, "link", "set", "line", "up")
                route = ["route", "replace", f"10.77.0.{other}", "dev", "line", "congctl", "reno"]
                run_command("ip", "-n", name, *route)
            with Site(network, 1, tmp_path).serving():
                _, found = Site(network, 0, tmp_path).examine("10.77.0.2", also=forbid_bbr)
        finally:
            carrier.kill()
            carrier.communicate()
    line = found["lines"][0]
    assert 0.04 <= line["round_trip"] < 1 and line["streams"] == 8
    assert "BBR: Operation not permitted" in texts(found, True), found
    assert "modprobe tcp_bbr" in str(found["advice"])
    assert "% of the bytes to 10.77.0.2:29600 were sent again" in texts(found, False), found


def test_a_doctor_who_serves_ends_by_a_signal():
    with kept_port() as port:
        words = ["doctor", "--serve", "--interface", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen([BINARY, *words], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout.readline().startswith(f"waits at 127.0.0.1:{port}")
            server.send_signal(signal.SIGTERM)
            assert server.wait(DEADLINE) == 0
        finally:
            server.kill()
            server.communicate()
