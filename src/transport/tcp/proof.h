// What the two ends of a connection prove their knowledge of the token with.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "deltawire/connect.h"
#include "deltawire/tensor.h"

namespace deltawire {

inline constexpr std::size_t kProofBytes = 32;
using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, kProofBytes>;
using TextDigest = std::array<std::byte, 32>;

// Bytes that nobody can foresee, from the operating system; nothing, with errno set, where it has none.
std::optional<Nonce> random_nonce() noexcept;

// HMAC-SHA256 over the pieces, which lie one after another. Each must have the same length in every proof
// of one kind, or two ways to cut them would give one proof. REQUIRES: at most 256 bytes.
std::optional<Proof> prove(const Token& token, std::span<const Bytes> pieces) noexcept;

// Takes the same time wherever the first difference is, so that guessing byte by byte is no use.
bool equal_in_constant_time(const Proof& a, const Proof& b) noexcept;

// SHA-256.
TextDigest digest_of(std::string_view text) noexcept;

}  // namespace deltawire
