"""The program of docs/design/tour.md: its bytes are the library's, and its decoder trusts none."""

import re
import subprocess

import deltawire
import numpy as np
import pytest
import spec_hashes

from tests.docs import pages

PAGE = pages.ROOT / "docs" / "design" / "tour.md"
STEPS, WORLD, SHAPE = 3, 2, (25, 40)

# Every cut and every flipped bit of a message is refused, and so is a message of another place.
HOSTILE = """
int main() {
  const Quantized part = quantize(gradient(0, 0), Floats(kCount, 0.0F));
  const Bytes good = frame_of(part, {7, 1});
  Floats mean(kCount, 0.0F);
  add_frame(good, {7, 1}, mean);
  int taken = 0;
  const auto offer = [&](const Bytes& bad, const Place& place) {
    try {
      add_frame(bad, place, mean);
      ++taken;
    } catch (const std::runtime_error&) {
    }
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
  // Heads and chunks of their own, with checksums that are right.
  for (unsigned seed = 1; seed < 20000; ++seed) {
    unsigned state = seed;
    Bytes bad = good;
    for (int i = 0; i < 3; ++i) {
      state = state * 1664525U + 1013904223U;
      bad[20 + (state >> 8) % (bad.size() - 20)] ^= static_cast<std::uint8_t>(state >> 24);
    }
    const std::size_t head = load(bad.data() + 8, 4);
    const std::uint32_t crc = head_crc(bad, head);
    for (std::size_t i = 0; i < 4; ++i) bad[16 + i] = static_cast<std::uint8_t>(crc >> 8 * i);
    try {
      add_frame(bad, {7, 1}, mean);
    } catch (const std::runtime_error&) {
    }
  }
  return taken;
}
"""


def program(folder, name: str, text: str, *options: str) -> str:
    """Compiles a C++ program; returns its path."""
    source = folder / f"{name}.cc"
    source.write_text(text)
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
    command = ["c++", "-std=c++20", "-pthread", *warnings, *options, source, "-o", folder / name]
    subprocess.run(list(map(str, command)), check=True, timeout=300)
    return str(folder / name)


@pytest.fixture(scope="module")
def tour() -> str:
    return "\n".join(re.findall(r"```c\+\+\n(.*?)```", PAGE.read_text(), re.DOTALL))


def gradient(rank: int, step: int) -> np.ndarray:
    places = np.arange(SHAPE[0] * SHAPE[1])
    values = ((places * 37 + step * 11 + rank * 53) % 101).astype(np.float32)
    values = values / np.float32(50) - np.float32(1)
    return (values * values * values * values * values).reshape(SHAPE)


def test_its_bytes_are_the_librarys(tmp_path, tour: str) -> None:
    ran = subprocess.run(
        program(tmp_path, "tour", tour), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert "rank 1, step 1: Corrupt: a chunk's checksum" in ran.stdout
    said = dict.fromkeys(re.findall(r"rank (\d), step (\d): mean (\w+), sent (\w+)", ran.stdout))
    channels = [
        deltawire.Channel("3lc:mode=paper", rank=rank, world_size=WORLD) for rank in range(WORLD)
    ]
    wanted = set()
    for step in range(STEPS):
        sent = [each.encode({"w": gradient(each.rank, step)}) for each in channels]
        mean = np.zeros(SHAPE, np.float32)
        for channel, message in zip(channels, sent, strict=True):
            channel.decode(message, {"w": mean}, scale=1 / WORLD)
        digest = f"{spec_hashes.xxh64(mean.tobytes()):016x}"
        wanted |= {(str(rank), str(step), digest, sent[rank].hex()) for rank in range(WORLD)}
    assert said.keys() == wanted


def test_its_decoder_refuses_whatever_is_damaged(tmp_path, tour: str) -> None:
    text = tour.replace("int main()", "int main_of_the_page()") + HOSTILE
    made = program(tmp_path, "hostile", text, "-g1", "-fsanitize=address,undefined")
    ran = subprocess.run(made, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


def test_it_is_short() -> None:
    assert len(PAGE.read_text().splitlines()) <= 500
