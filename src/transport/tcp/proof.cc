#include "transport/tcp/proof.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include "base/errors.h"

namespace deltawire {
namespace {

constexpr std::size_t kSecretMin = 16;

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

Bytes trim_secret(Bytes secret) noexcept {
  if (secret.size() == std::tuple_size_v<Token> || secret.empty() || secret.back() != std::byte{'\n'}) {
    return secret;
  }
  secret = secret.first(secret.size() - 1);
  const bool has_return = !secret.empty() && secret.back() == std::byte{'\r'};
  return secret.first(secret.size() - (has_return ? 1 : 0));
}

Result<Token> token_of(Bytes secret) {
  constexpr std::string_view kLabel = "deltawire token ";
  secret = trim_secret(secret);
  if (secret.size() < kSecretMin) {
    return invalid("a secret of " + std::to_string(secret.size()) +
                   " bytes can be guessed; take 16 or more, e.g. from \"openssl rand -hex 32\"");
  }
  Token token;
  if (secret.size() == token.size()) {
    std::ranges::copy(secret, token.begin());
    return token;
  }
  std::string labelled(kLabel);
  labelled.append(reinterpret_cast<const char*>(secret.data()), secret.size());
  return digest_of(labelled);
}

TextDigest digest_of(std::string_view text) noexcept {
  TextDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), raw(digest.data()));
  return digest;
}

}  // namespace deltawire
