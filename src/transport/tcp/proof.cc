#include "transport/tcp/proof.h"

#include <cstring>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <sys/random.h>

namespace deltawire {
namespace {

unsigned char* raw(std::byte* bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes);
}

}  // namespace

std::optional<Nonce> random_nonce() noexcept {
  Nonce nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) return std::nullopt;
  return nonce;
}

std::optional<Proof> prove(const Token& token, std::span<const Bytes> pieces) noexcept {
  std::array<std::byte, 256> all;
  std::size_t length = 0;
  for (const Bytes piece : pieces) {
    if (piece.size() > all.size() - length) return std::nullopt;
    if (!piece.empty()) std::memcpy(all.data() + length, piece.data(), piece.size());
    length += piece.size();
  }
  Proof proof;
  unsigned int written = 0;
  if (HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), raw(all.data()), length,
           raw(proof.data()), &written) == nullptr ||
      written != proof.size()) {
    return std::nullopt;
  }
  return proof;
}

bool equal_in_constant_time(const Proof& a, const Proof& b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

TextDigest digest_of(std::string_view text) noexcept {
  TextDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), raw(digest.data()));
  return digest;
}

}  // namespace deltawire
