// Messages for tests of any Transport: their bytes, and a plan of many messages that all ranks know.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "deltawire/transport.h"

namespace deltawire::test {

inline Deadline in(std::chrono::milliseconds time) {
  return Clock::now() + time;
}

// Generous: a test that meets it hangs, on however slow a machine.
inline Deadline soon() {
  return in(std::chrono::seconds(30));
}

// Bytes that depend on everything given, so that a message in the wrong place is noticed.
inline std::vector<std::byte> pattern(std::size_t length, std::uint64_t seed) {
  std::vector<std::byte> bytes(length);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (std::size_t begin = 0; begin < length; begin += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t word = state ^ state >> 32;  // a product's low bits repeat soon
    std::memcpy(bytes.data() + begin, &word, std::min(sizeof word, length - begin));
  }
  return bytes;
}

// As ==, which compares vectors of std::byte one by one.
inline bool same_bytes(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

inline Handle send_bytes(Transport& from, int to, Tag tag, const std::vector<std::byte>& bytes) {
  const Bytes piece(bytes);
  return from.post_send(to, tag, {&piece, 1});
}

struct Planned {
  int from, to;
  Tag tag;
  std::size_t length;
  std::uint64_t seed;
};

// `each` messages from every rank to every other, of random lengths and few tags; the same on all ranks.
inline std::vector<Planned> plan_messages(int world_size, std::span<const std::size_t> lengths, int each,
                                          std::mt19937_64& random) {
  std::vector<Planned> plan;
  std::uint64_t seed = random();
  for (int from = 0; from < world_size; ++from) {
    for (int to = 0; to < world_size; ++to) {
      if (from == to) continue;
      for (int i = 0; i < each; ++i) {
        plan.push_back({from, to, random() % 5, lengths[random() % lengths.size()], ++seed});
      }
    }
  }
  return plan;
}

// This rank's part of the plan. It posts tag by tag, in an order of tags that differs between ranks (messages
// with one tag keep their order), and waits in any order.
inline void play(Transport& self, const std::vector<Planned>& plan, std::uint64_t seed) {
  struct Posted {
    Handle handle = Handle::kNone;
    const Planned* message = nullptr;
    std::vector<std::byte> bytes;
  };
  std::vector<Posted> posts;
  for (const Planned& message : plan) {
    if (message.from == self.rank()) posts.push_back({{}, &message, pattern(message.length, message.seed)});
    if (message.to == self.rank()) posts.push_back({{}, &message, std::vector<std::byte>(message.length)});
  }
  std::vector<std::size_t> order(posts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&posts, seed](std::size_t a, std::size_t b) {
    const auto key = [&](std::size_t i) { return (posts[i].message->tag * 0x9E3779B97F4A7C15u) ^ seed; };
    return std::pair(key(a), a) < std::pair(key(b), b);
  });
  for (const std::size_t i : order) {
    Posted& post = posts[i];
    const Planned& message = *post.message;
    post.handle = message.from == self.rank() ? send_bytes(self, message.to, message.tag, post.bytes)
                                              : self.post_recv(message.from, message.tag, post.bytes);
  }
  std::mt19937_64 random(seed);
  std::shuffle(posts.begin(), posts.end(), random);
  for (Posted& post : posts) {
    const auto moved = self.wait(post.handle, soon());
    ASSERT_TRUE(moved.has_value()) << moved.error().message;
    EXPECT_EQ(*moved, post.message->length);
    EXPECT_TRUE(same_bytes(post.bytes, pattern(post.message->length, post.message->seed)));
  }
}

}  // namespace deltawire::test
