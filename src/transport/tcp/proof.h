// The cryptography by which the two ends of a connection prove that they know the token.
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

// Unpredictable bytes from the operating system; nothing, with errno set, if it has none.
std::optional<Nonce> random_nonce() noexcept;

// HMAC-SHA256 over the concatenated pieces. Each piece must have the same length in every proof of one kind,
// or different pieces could give the same proof. REQUIRES: at most 256 bytes.
std::optional<Proof> prove(const Token& token, std::span<const Bytes> pieces) noexcept;

// Takes the same time wherever the first difference is, so that a proof can't be guessed byte by byte.
bool equal_in_constant_time(const Proof& a, const Proof& b) noexcept;

// The first bytes of the text's SHA-256.
TextDigest digest_of(std::string_view text) noexcept;

}  // namespace deltawire
