// Unit tests of the handshake, without sockets: which peers get through it, and which don't.
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "transport/tcp/handshake_testing.h"

namespace deltawire::handshake_test {
namespace {

using Bytestring = std::vector<std::byte>;

Token token_of(unsigned char fill) {
  Token token;
  for (std::size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(fill + 5 * i);
  return token;
}

Nonce nonce_of(unsigned char fill) {
  Nonce nonce;
  nonce.fill(std::byte{fill});
  return nonce;
}

Claims dialer_claims() {
  Claims claims;
  claims.stream = Claims::Stream::kControl;
  claims.role = Claims::Role::kDialer;
  claims.rank = 2;
  claims.peer = 1;
  claims.world_size = 300;
  claims.epoch = 0x01020304;
  claims.life = 0x1122334455667788;
  claims.text = "codec=3lc";
  return claims;
}

Claims listener_claims() {
  Claims claims = dialer_claims();
  claims.stream = Claims::Stream::kData;  // the dialer says which
  claims.role = Claims::Role::kListener;
  claims.rank = 1;
  claims.peer = 77;  // the dialer says that too
  claims.text = "codec=sbc";
  return claims;
}

// Takes the bytes that one end wants to send now.
Bytestring take_unsent(Handshake& end) {
  const Bytestring bytes(end.unsent().begin(), end.unsent().end());
  end.sent(bytes.size());
  return bytes;
}

struct Ends {
  Handshake dialer;
  Handshake listener;
  Exchange dialer_state = Exchange::kMore;
  Exchange listener_state = Exchange::kMore;

  Ends(const Claims& dials, const Claims& listens, const Token& dialers = token_of(7),
       const Token& listeners = token_of(7))
      : dialer(dialers, dials, nonce_of(1)), listener(listeners, listens, nonce_of(2)) {}

  // Passes everything on, changed by `change(message number, bytes)`, until nothing moves.
  void run(const std::function<void(int, Bytestring&)>& change = {}, std::size_t piece = 1000000) {
    for (int message = 0; message < 6; ++message) {
      const bool from_dialer = message % 2 == 0;
      Bytestring bytes = take_unsent(from_dialer ? dialer : listener);
      if (bytes.empty()) continue;
      if (change) change(message, bytes);
      Exchange& state = from_dialer ? listener_state : dialer_state;
      if (state == Exchange::kMore) state = give(from_dialer ? listener : dialer, bytes, piece);
    }
    if (dialer_state == Exchange::kMore) dialer_state = dialer.sent(0);
    if (listener_state == Exchange::kMore) listener_state = listener.sent(0);
  }
};

TEST(Proof, IsHmacSha256) {
  // RFC 4231, test case 1. HMAC fills a key up with zeros, so that one of 20 bytes has 12 more here.
  Token key{};
  std::fill_n(key.begin(), 20, std::byte{0x0B});
  const std::string_view data = "Hi There";
  const Bytes all(reinterpret_cast<const std::byte*>(data.data()), data.size());
  constexpr std::array<unsigned char, 32> kExpected{
      0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53, 0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b, 0xf1, 0x2b,
      0x88, 0x1d, 0xc2, 0x00, 0xc9, 0x83, 0x3d, 0xa7, 0x26, 0xe9, 0x37, 0x6c, 0x2e, 0x32, 0xcf, 0xf7};
  const std::array<Bytes, 3> pieces{all.first(3), Bytes(), all.subspan(3)};
  const auto proof = prove(key, pieces);
  ASSERT_TRUE(proof.has_value());
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(kExpected)), *proof));
  EXPECT_TRUE(equal_in_constant_time(*proof, *proof));
  for (std::size_t i = 0; i < proof->size(); ++i) {
    Proof other = *proof;
    other[i] ^= std::byte{0x80};
    EXPECT_FALSE(equal_in_constant_time(*proof, other));
  }
  const Bytestring long_data(257);
  EXPECT_FALSE(prove(key, std::array<Bytes, 1>{long_data}).has_value());
  EXPECT_FALSE(prove(key, std::array<Bytes, 2>{Bytes(long_data).first(200), Bytes(long_data).first(57)}));
  EXPECT_TRUE(prove(key, std::array<Bytes, 2>{Bytes(long_data).first(200), Bytes(long_data).first(56)}));
}

TEST(Proof, NoncesDiffer) {
  const auto first = random_nonce();
  const auto second = random_nonce();
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_NE(*first, *second);
  EXPECT_NE(*first, Nonce{});
}

TEST(Handshake, BothEndsLearnTheOtherHoweverBytesAreCut) {
  for (const std::size_t piece : {1ul, 3ul, 31ul, 32ul, 33ul, 91ul, 92ul, 1000000ul}) {
    Ends ends(dialer_claims(), listener_claims());
    ends.run({}, piece);
    ASSERT_EQ(ends.dialer_state, Exchange::kDone);
    ASSERT_EQ(ends.listener_state, Exchange::kDone);
    const Claims& dialer = ends.listener.peer();
    EXPECT_EQ(dialer.version, Claims::kVersion);
    EXPECT_EQ(dialer.stream, Claims::Stream::kControl);
    EXPECT_EQ(dialer.role, Claims::Role::kDialer);
    EXPECT_EQ(dialer.rank, 2u);
    EXPECT_EQ(dialer.peer, 1u);
    EXPECT_EQ(dialer.world_size, 300u);
    EXPECT_EQ(dialer.epoch, 0x01020304u);
    EXPECT_EQ(dialer.life, 0x1122334455667788u);
    EXPECT_EQ(dialer.problem, 0u);
    EXPECT_EQ(dialer.suspect, Claims::kNobody);
    EXPECT_EQ(dialer.text, "codec=3lc");
    const Claims& listener = ends.dialer.peer();
    EXPECT_EQ(listener.stream, Claims::Stream::kControl);
    EXPECT_EQ(listener.role, Claims::Role::kListener);
    EXPECT_EQ(listener.rank, 1u);
    EXPECT_EQ(listener.peer, 2u);
    EXPECT_EQ(listener.text, "codec=sbc");
    EXPECT_TRUE(ends.dialer.room().empty()) << "a byte past the end would be the mesh's";
    EXPECT_TRUE(ends.listener.room().empty());
  }
}

TEST(Handshake, IsDoneOnceAllIsSent) {
  Ends ends(dialer_claims(), listener_claims());
  give(ends.listener, take_unsent(ends.dialer));
  give(ends.dialer, take_unsent(ends.listener));
  give(ends.listener, take_unsent(ends.dialer));
  EXPECT_EQ(give(ends.dialer, take_unsent(ends.listener)), Exchange::kMore) << "its text is still here";
  const Bytestring text(ends.dialer.unsent().begin(), ends.dialer.unsent().end());
  EXPECT_TRUE(ends.listener.is_trusted()) << "by its proof: it only has to say the rest";
  EXPECT_EQ(ends.dialer.sent(text.size() - 1), Exchange::kMore);
  EXPECT_EQ(ends.dialer.sent(1), Exchange::kDone);
  EXPECT_EQ(give(ends.listener, text), Exchange::kDone);
}

TEST(Handshake, TheListenersProofIsAsDescribed) {
  std::vector<Bytestring> said;
  Ends ends(dialer_claims(), listener_claims());
  ends.run([&](int, Bytestring& bytes) { said.push_back(bytes); });
  const std::string label = "deltawire listen";
  const Bytes first(said[0]);
  const Bytes answer(said[3]);
  const std::array<Bytes, 5> pieces{std::as_bytes(std::span(label)), first.subspan(kClaimsBytes), said[1],
                                    first.first(kClaimsBytes), answer.first(kClaimsBytes)};
  EXPECT_TRUE(std::ranges::equal(*prove(token_of(7), pieces), answer.subspan(kClaimsBytes, kProofBytes)));
}

TEST(Handshake, TextsMayBeEmptyOrLong) {
  for (const std::size_t dials : {0ul, 1ul, 1024ul}) {
    for (const std::size_t listens : {0ul, 1ul, 1024ul}) {
      Claims dialer = dialer_claims();
      Claims listener = listener_claims();
      dialer.text.assign(dials, 'd');
      listener.text.assign(listens, 'l');
      Ends ends(dialer, listener);
      ends.run({}, 7);
      ASSERT_EQ(ends.dialer_state, Exchange::kDone);
      ASSERT_EQ(ends.listener_state, Exchange::kDone);
      EXPECT_EQ(ends.listener.peer().text, dialer.text);
      EXPECT_EQ(ends.dialer.peer().text, listener.text);
    }
  }
}

TEST(Handshake, AProblemTravelsInThePlaceOfSettings) {
  Claims listener = listener_claims();
  listener.problem = 17;
  listener.names_reporter = true;
  listener.suspect = 258;
  listener.text = "rank 1 is out of paper";
  Ends ends(dialer_claims(), listener);
  ends.run();
  ASSERT_EQ(ends.dialer_state, Exchange::kDone);
  EXPECT_EQ(ends.dialer.peer().problem, 17u);
  EXPECT_TRUE(ends.dialer.peer().names_reporter);
  EXPECT_EQ(ends.dialer.peer().suspect, 258u);
  EXPECT_EQ(ends.dialer.peer().text, "rank 1 is out of paper");
}

TEST(Handshake, TheTokenNeverTravels) {
  Ends ends(dialer_claims(), listener_claims());
  Bytestring all;
  ends.run([&](int, Bytestring& bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); });
  ASSERT_EQ(ends.dialer_state, Exchange::kDone);
  const Token token = token_of(7);
  for (std::size_t i = 0; i + 4 <= token.size(); ++i) {
    EXPECT_EQ(std::ranges::search(all, Bytes(token).subspan(i, 4)).size(), 0u) << "part of it, at " << i;
  }
}

TEST(Handshake, AnotherTokenIsAStrangerAtBothEnds) {
  Ends ends(dialer_claims(), listener_claims(), token_of(7), token_of(8));
  ends.run();
  EXPECT_EQ(ends.listener_state, Exchange::kStranger);
  EXPECT_EQ(ends.dialer_state, Exchange::kMore) << "it gets no answer";
  EXPECT_TRUE(ends.dialer.has_proved());
  EXPECT_FALSE(ends.listener.has_proved());
}

TEST(Handshake, AListenerWithoutTheTokenIsAStranger) {
  // The impostor accepts any proof; only its own is missing.
  Handshake dialer(token_of(7), dialer_claims(), nonce_of(1));
  Handshake impostor(token_of(8), listener_claims(), nonce_of(2));
  Handshake helper(token_of(8), dialer_claims(), nonce_of(1));  // who proves to the impostor what it expects
  (void)take_unsent(dialer);
  give(impostor, take_unsent(helper));
  const Bytestring nonce = take_unsent(impostor);
  give(helper, nonce);
  EXPECT_EQ(give(dialer, nonce), Exchange::kMore);
  give(impostor, take_unsent(helper));
  EXPECT_EQ(give(dialer, take_unsent(impostor)), Exchange::kStranger);
}

TEST(Handshake, EveryFlippedBitIsRefused) {
  Bytestring lengths;
  for (int message = 0; message < 5; ++message) {
    std::size_t length = 1;
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      Ends ends(dialer_claims(), listener_claims());
      ends.run([&](int number, Bytestring& bytes) {
        if (number != message) return;
        length = bytes.size();
        bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      });
      EXPECT_FALSE(ends.dialer_state == Exchange::kDone && ends.listener_state == Exchange::kDone)
          << "message " << message << " bit " << bit;
      // Before the last message, neither end accepts the other one as a rank.
      if (message < 3) {
        EXPECT_NE(ends.listener_state, Exchange::kDone);
        EXPECT_NE(ends.dialer_state, Exchange::kDone);
      } else if (message == 3) {
        EXPECT_NE(ends.dialer_state, Exchange::kDone);
      }
    }
    EXPECT_GE(length, 9u);
  }
}

TEST(Handshake, AReplayIsRefused) {
  std::vector<Bytestring> said;
  Ends ends(dialer_claims(), listener_claims());
  ends.run([&](int, Bytestring& bytes) { said.push_back(bytes); });
  ASSERT_EQ(said.size(), 5u);
  Handshake listener(token_of(7), listener_claims(), nonce_of(3));
  give(listener, said[0]);
  EXPECT_EQ(give(listener, said[2]), Exchange::kStranger);
  Handshake dialer(token_of(7), dialer_claims(), nonce_of(4));
  give(dialer, said[1]);
  EXPECT_EQ(give(dialer, said[3]), Exchange::kStranger);
}

TEST(Handshake, AReflectionIsRefused) {
  // A dialer meets itself: nonce and proof come back, and its own claims with them.
  Handshake dialer(token_of(7), dialer_claims(), nonce_of(1));
  const Bytestring first = take_unsent(dialer);
  give(dialer, Bytes(first).subspan(kClaimsBytes));
  const Bytestring proof = take_unsent(dialer);
  Bytestring answer(first.begin(), first.begin() + kClaimsBytes);
  answer.insert(answer.end(), proof.begin(), proof.end());
  EXPECT_EQ(give(dialer, answer), Exchange::kStranger);
  // A listener's proof is not valid as a dialer's, over the very same nonces.
  std::vector<Bytestring> said;
  Ends ends(dialer_claims(), listener_claims());
  ends.run([&](int, Bytestring& bytes) { said.push_back(bytes); });
  Handshake listener(token_of(7), listener_claims(), nonce_of(2));
  give(listener, said[0]);
  EXPECT_EQ(give(listener, Bytes(said[3]).subspan(kClaimsBytes, kProofBytes)), Exchange::kStranger);
}

// What a listener says that has no place left is no refusal, and ends the connection.
TEST(Handshake, ABusyListenerIsNoStranger) {
  Handshake dialer(token_of(7), dialer_claims(), nonce_of(1));
  Handshake listener(token_of(7), listener_claims(), nonce_of(2));
  listener.turn_away();
  EXPECT_TRUE(listener.unsent().empty()) << "whoever has sent nothing hears nothing";
  give(listener, dialer.unsent());
  dialer.sent(dialer.unsent().size());
  listener.turn_away();
  EXPECT_EQ(listener.unsent().size(), sizeof(Nonce) + kClaimsBytes + kProofBytes);
  give(dialer, listener.unsent().first(sizeof(Nonce)));
  EXPECT_TRUE(dialer.has_proved());
  EXPECT_EQ(give(dialer, listener.unsent().subspan(sizeof(Nonce))), Exchange::kBusy);
}

TEST(Handshake, StrangersAreHeldToALittle) {
  Handshake listener(token_of(7), listener_claims(), nonce_of(2));
  EXPECT_TRUE(listener.unsent().empty()) << "silence is answered by silence";
  const Bytestring garbage(100000, std::byte{0x44});
  std::size_t taken = 0;
  Exchange state = Exchange::kMore;
  while (state == Exchange::kMore) {
    taken += listener.room().size();
    state = give(listener, Bytes(garbage).first(listener.room().size()));
  }
  EXPECT_EQ(state, Exchange::kStranger);
  EXPECT_LE(taken, 128u);
  EXPECT_TRUE(listener.unsent().empty());
  EXPECT_FALSE(listener.has_heard());
  // With the right magic: the nonce, and nothing more.
  Handshake again(token_of(7), listener_claims(), nonce_of(2));
  Handshake other(token_of(8), dialer_claims(), nonce_of(1));
  const Bytestring claims = take_unsent(other);
  EXPECT_EQ(give(again, claims), Exchange::kMore);
  EXPECT_TRUE(again.has_heard());
  EXPECT_FALSE(again.is_trusted());
  const Bytestring answer = take_unsent(again);
  EXPECT_TRUE(std::ranges::equal(answer, nonce_of(2)));
  EXPECT_LE(claims.size() + again.room().size(), 128u);
  EXPECT_EQ(give(again, garbage), Exchange::kStranger);
  EXPECT_TRUE(again.unsent().empty());
}

TEST(Handshake, NonsenseBehindTheTokenIsBroken) {
  const auto listener_on = [](const std::function<void(Claims&)>& change) {
    Claims claims = dialer_claims();
    change(claims);
    Ends ends(claims, listener_claims());
    ends.run();
    return ends.listener_state;
  };
  EXPECT_EQ(listener_on([](Claims& h) { h.stream = Claims::Stream{0}; }), Exchange::kBroken);
  EXPECT_EQ(listener_on([](Claims& h) { h.stream = Claims::more_stream(7); }), Exchange::kBroken);
  EXPECT_EQ(listener_on([](Claims& h) { h.stream = Claims::more_stream(6); }), Exchange::kDone);
  EXPECT_EQ(listener_on([](Claims& h) { h.text.assign(1025, 'x'); }), Exchange::kBroken);
  EXPECT_EQ(listener_on([](Claims& h) { h.stream = Claims::Stream::kData; }), Exchange::kDone);
  const auto dialer_on = [](const std::function<void(Claims&)>& change) {
    Claims claims = listener_claims();
    change(claims);
    Ends ends(dialer_claims(), claims);
    ends.run();
    return ends.dialer_state;
  };
  EXPECT_EQ(dialer_on([](Claims& h) { h.text.assign(1025, 'x'); }), Exchange::kBroken);
  EXPECT_EQ(dialer_on([](Claims&) {}), Exchange::kDone);
}

// A dialer that knows the token and makes arbitrary claims; computes its proof as documented, without the
// code.
Exchange claiming(const ClaimsBytes& claimed, const std::string& text = "codec=3lc") {
  const Nonce dialers = nonce_of(1);
  const Nonce listeners = nonce_of(2);
  const std::string label = "deltawire dialer";
  const std::array<Bytes, 4> pieces{std::as_bytes(std::span(label)), dialers, listeners, claimed};
  const Proof proof = *prove(token_of(7), pieces);
  Handshake listener(token_of(7), listener_claims(), listeners);
  Exchange state = Exchange::kMore;
  for (const Bytes bytes : {Bytes(claimed), Bytes(dialers), Bytes(proof), std::as_bytes(std::span(text))}) {
    if (state == Exchange::kMore) state = give(listener, bytes);
    (void)take_unsent(listener);
  }
  return state == Exchange::kMore ? listener.sent(0) : state;
}

TEST(Handshake, EveryClaimIsChecked) {
  const ClaimsBytes right = encode_claims(dialer_claims());
  const auto with = [&](std::size_t at, int value) {
    ClaimsBytes bytes = right;
    bytes[at] = static_cast<std::byte>(value);
    return claiming(bytes);
  };
  EXPECT_EQ(claiming(right), Exchange::kDone);
  for (std::size_t at = 0; at < 4; ++at) EXPECT_EQ(with(at, 0), Exchange::kStranger) << "magic";
  EXPECT_EQ(with(6, 0), Exchange::kBroken) << "stream";
  EXPECT_EQ(with(6, 10), Exchange::kBroken) << "stream";
  EXPECT_EQ(with(7, 0), Exchange::kBroken) << "role";
  EXPECT_EQ(with(7, 2), Exchange::kBroken) << "role: a listener's";
  EXPECT_EQ(with(20, 8), Exchange::kBroken) << "a text cut short";
  EXPECT_EQ(with(21, 4), Exchange::kBroken) << "1,033 bytes of text";
  EXPECT_EQ(with(28, 0), Exchange::kDone) << "any life will do";
  EXPECT_EQ(with(36, 0), Exchange::kBroken) << "digest";
  EXPECT_EQ(with(59, 0), Exchange::kBroken) << "digest";
  EXPECT_EQ(claiming(right, "codec=4lc"), Exchange::kBroken) << "another text than the proof covers";
}

TEST(Handshake, AnotherVersionIsNamedAndNothingBehindItIsRead) {
  Claims newer = dialer_claims();
  newer.version = Claims::kVersion + 1;
  newer.stream = Claims::Stream{99};
  Ends ends(newer, listener_claims());
  ends.run();
  EXPECT_EQ(ends.listener_state, Exchange::kDone);
  EXPECT_EQ(ends.listener.peer().version, newer.version);
  EXPECT_EQ(ends.listener.peer().rank, 2u);
  EXPECT_EQ(ends.listener.peer().text, "");
  EXPECT_EQ(ends.dialer_state, Exchange::kDone);
  EXPECT_EQ(ends.dialer.peer().version, Claims::kVersion);
}

}  // namespace
}  // namespace deltawire::handshake_test
