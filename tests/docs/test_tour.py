"""The program of docs/design/tour.md: its bytes are the library's, and its decoder trusts none."""

import functools
import re
import subprocess
from pathlib import Path

import deltawire
import numpy as np
import pytest
import spec_hashes

from tests.docs import pages

PAGE = pages.ROOT / "docs" / "design" / "tour.md"
STEPS, WORLD, SHAPE = 3, 2, (25, 40)
CHANNEL = functools.partial(deltawire.Channel, "3lc:mode=paper", world_size=WORLD)

# Every cut and every flipped bit of a message is refused, and so is a message of another place.
# Frames of the smallest and of the largest floats are printed; swap carries what no buffer holds.
HOSTILE = """
int hostile() {
  for (const unsigned first : {0U, 0x7F7FFF00U}) {
    Floats values, mean(kCount, 0.0F);
    for (unsigned i = 0; i < kCount; ++i) values.push_back(std::bit_cast<float>(first + i % 2));
    const Bytes frame = frame_of(quantize(values, mean), {0, 0});
    add_frame(frame, {0, 0}, mean);
    for (const unsigned byte : frame) std::printf("%02x", byte);
    std::printf(" %016llx ", static_cast<unsigned long long>(digest(mean)));
  }
  const Bytes good = frame_of(quantize(gradient(0, 0), Floats(kCount, 0.0F)), {7, 1});
  Floats mean(kCount, 0.0F);
  add_frame(good, {7, 1}, mean);
  int taken = 0;
  const auto offer = [&](const Bytes& bad, const Place& place, int counts = 1) {
    try { add_frame(bad, place, mean); taken += counts; } catch (const std::runtime_error&) {}
  };
  for (std::size_t at = 0; at < good.size(); ++at) {
    offer(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(at)), {7, 1});
    for (int bit = 0; bit < 8; ++bit) {
      Bytes bad = good;
      bad[at] ^= static_cast<std::uint8_t>(1 << bit);
      offer(bad, {7, 1});
    }
  }
  for (const Place& place : {Place{8, 1}, Place{7, 0}, Place{7, 1, 3}}) offer(good, place);
  for (unsigned seed = 1, state = 1; seed < 20000; state = ++seed) {  // with right checksums
    Bytes bad = good;
    for (int i = 0; i < 3; ++i) {
      state = state * 1664525U + 1013904223U;
      bad[20 + (state >> 8) % (bad.size() - 20)] ^= static_cast<std::uint8_t>(state >> 24);
    }
    View length = View(bad).subspan(8, 4), rest = View(bad).subspan(20, take(length, 4) - 20);
    const std::uint32_t crc = crc32c(rest, crc32c(View(bad).first(16)));
    for (std::size_t i = 0; i < 4; ++i) bad[16 + i] = static_cast<std::uint8_t>(crc >> 8 * i);
    offer(bad, {7, 1}, 0);
  }
  int sockets[2], failed = socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
  std::thread other([&] { Rank{.number = 1, .socket = sockets[1]}.swap(Bytes(1 << 20)); });
  Rank{.number = 0, .socket = sockets[0]}.swap(Bytes(1 << 20));
  other.join();
  return taken + failed;
}
int main(int count, char**) { return count > 1 ? page() : hostile(); }
"""

# Changes after which the page must end with 1: what it says, what it says instead, what it prints.
VOTE = "const Bytes their_vote = swap(vote);"
BROKEN = [
    (VOTE, f"residual = mine.residual; {VOTE}", "mean"),
    ("residual = mine.residual;", "", "mean"),
    (VOTE, "swap(vote); const Bytes their_vote = vote;", "mean"),
    ("put(vote,", "mean[0] += mine.residual[0]; put(vote,", "Mismatch: the ranks disagree\n"),
    ("params_hash(), 4}", "params_hash() + place.rank, 4}", "three attempts, none of which counts"),
    (VOTE, f'require(step < 2 || number == 0, "dies"); {VOTE}', "rank 0 ends: PeerLost: "),
]


def compiled(folder: Path, text: str, *options: str) -> Path:
    """A C++ program."""
    (folder / "page.cc").write_text(text)
    options += ("-std=c++20", "-pthread", "-Wall", "-Wextra", "-Wconversion", "-Werror")
    subprocess.run(["c++", *options, "page.cc", "-o", "page"], cwd=folder, check=True, timeout=300)
    return folder / "page"


def output(*command: str | Path) -> str:
    return subprocess.check_output(command, text=True, timeout=120)


@pytest.fixture(scope="module")
def tour() -> str:
    text = "\n".join(re.findall(r"```c\+\+\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert text.count("int main()") == 1
    return text.replace("int main()", "int page()")


@pytest.fixture(scope="module")
def program(tour: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an argument the page's, else the hostile one."""
    folder = tmp_path_factory.mktemp("tour")
    return compiled(folder, tour + HOSTILE, "-g1", "-fsanitize=address,undefined")


def gradient(rank: int, step: int) -> np.ndarray:
    places = np.arange(SHAPE[0] * SHAPE[1])
    values = ((places * 37 + step * 11 + rank * 53) % 101).astype(np.float32) / 50 - 1
    return (values * values * values * values * values).reshape(SHAPE)


def exchanged(channels: list, values: list) -> tuple[list[str], str]:
    """What ranks send for these values, and the digest of their mean, by the library."""
    sent = [each.encode({"w": value}) for each, value in zip(channels, values, strict=True)]
    mean = np.zeros(SHAPE, np.float32)
    for each, message in zip(channels, sent, strict=True):
        each.decode(message, {"w": mean}, scale=1 / WORLD)
    return [message.hex() for message in sent], f"{spec_hashes.xxh64(mean.tobytes()):016x}"


def test_its_bytes_are_the_librarys(program: Path) -> None:
    printed = output(program, "page")
    table, lines = (each.text for each in pages.blocks_of(PAGE) if each.language == "text")
    assert sorted(re.sub("(?<=sent) .*", "", printed).splitlines()) == sorted(lines.splitlines())
    said = re.findall(r"rank (\d), step (\d): mean (\w+), sent (\w+)", printed)
    channels = [CHANNEL(rank=rank) for rank in range(WORLD)]
    for step in range(STEPS):
        sent, digest = exchanged(channels, [gradient(rank, step) for rank in range(WORLD)])
        wanted = {(str(rank), str(step), digest, sent[rank]) for rank in range(WORLD)}
        assert {each for each in said if each[1] == str(step)} == wanted
    frame = next(each[3] for each in said if each[:2] == ("1", "0"))
    fields = re.findall(r"(\d+) ((?:[0-9a-f]{2})+) ", table)
    assert "".join(field for _, field in fields) == frame[: 2 * 63]
    assert all(frame[2 * int(offset) :].startswith(field) for offset, field in fields)
    assert len(PAGE.read_text().splitlines()) <= 500


def test_its_decoder_refuses_whatever_is_damaged(program: Path) -> None:
    edges = []
    for first in (0, 0x7F7FFF00):
        bits = first + np.arange(SHAPE[0] * SHAPE[1], dtype=np.uint32) % 2
        sent, digest = exchanged([CHANNEL(rank=0)], [bits.view(np.float32).reshape(SHAPE)])
        edges += [*sent, digest]
    assert output(program).split() == edges


def test_it_tells_when_it_is_broken(tmp_path: Path, tour: str) -> None:
    text, names, body = tour.partition("using Bytes")
    calls = ""  # one program: most of a compiler's time goes into headers
    for number, (before, after, _) in enumerate(BROKEN):
        assert body.count(before) == 1, before
        text += f"namespace n{number} {{\n{names}{body.replace(before, after)}}}\n"
        calls += f'  std::printf("returned %d\\n", n{number}::page());\n'
    text += f"int main() {{\n{calls}}}\n"
    printed = output(compiled(tmp_path, text)).split("returned 1\n")
    for (_, after, wanted), lines in zip(BROKEN, printed[:-1], strict=True):
        assert wanted in lines, after
