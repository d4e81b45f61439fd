// Writes the seeds of the fuzzers that need valid bytes to begin with: make_corpus FOLDER
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "deltawire/channel.h"
#include "deltawire/file.h"
#include "deltawire/optimizer.h"
#include "deltawire/patch.h"
#include "deltawire/patch_file.h"
#include "deltawire/reducer.h"
#include "deltawire/snapshot.h"
#include "fuzz_inputs.h"
#include "patch_file_inputs.h"
#include "patch_inputs.h"
#include "server_inputs.h"

namespace deltawire {
namespace {

using Seed = std::vector<std::byte>;

std::filesystem::path corpus;
const std::vector<std::string> specs = fuzz::codec_specs();

template <class Value>
Value sure(Result<Value> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(*result);
}

void write(const std::string& target, const std::string& name, const Seed& seed) {
  const std::filesystem::path folder = corpus / ("fuzz_" + target);
  std::filesystem::create_directories(folder);
  std::ofstream out(folder / name, std::ios::binary);
  out.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
  if (!out) std::exit(1);
}

void append(Seed& seed, Bytes bytes) {
  seed.insert(seed.end(), bytes.begin(), bytes.end());
}

void append(Seed& seed, std::string_view text) {
  append(seed, std::as_bytes(std::span(text)));
}

template <class Number>
void append_number(Seed& seed, Number number) {
  seed.resize(seed.size() + sizeof number);
  store_le(seed.data() + seed.size() - sizeof number, number);
}

// Mostly small values, some zeros, a few large ones.
void fill(std::vector<float>& values, std::uint64_t seed, double zeros) {
  CounterRng rng(seed);
  for (float& value : values) {
    const double u = rng.next_uniform() - 0.5;
    value = rng.next_uniform() < zeros ? 0.0F : static_cast<float>(u * u * u);
  }
}

void make_message(std::size_t codec, const std::string& kind, fuzz::ManyTensors tensors) {
  const auto channel = sure(make_channel(specs[codec], {fuzz::kMessagePolicy, Revert::kFold}));
  Seed seed{static_cast<std::byte>(codec)};
  for (const Bytes piece : sure(channel->encode(tensors.named(), {}))) append(seed, piece);
  write("message", "codec" + std::to_string(codec) + "-" + kind, seed);
}

void make_messages() {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    fuzz::ManyTensors tensors;
    for (const double zeros : {0.0, 0.9}) {
      fill(tensors.large, i, zeros);
      fill(tensors.halves, i, zeros);
      fill(tensors.small, i + 100, zeros);
      make_message(i, zeros > 0 ? "sparse" : "dense", tensors);
    }
    // Segments without chunks: not finite, and nothing.
    tensors.large[7] = std::numeric_limits<float>::infinity();
    const CodecInfo info = sure(make_codec(specs[i]))->info();
    if (info.finite_only) make_message(i, "infinite", tensors);
    if (info.error_feedback) make_message(i, "unused", {});
  }
}

// Count, scalars, number of chunks and the bytes of the first of several, then a payload; fuzz_inputs.h says
// what long ones have besides.
void make_payload(std::size_t number, double zeros, bool is_long, const std::string& kind) {
  constexpr std::uint16_t kShortCount = 100;
  const auto codec = sure(make_codec(specs[number]));
  std::vector<float> values(is_long ? fuzz::kLongCount : kShortCount);
  fill(values, number, zeros);
  const TensorView part{values.data(), values.size(), DType::kF32};
  const Sizes sizes = codec->sizes(part);
  Seed payload(sizes.payload_bytes);
  std::vector<std::uint32_t> ends(sizes.chunks);
  Seed scratch(sizes.scratch_bytes);
  const EncodedPart encoded = sure(codec->encode(part, {}, PartBuffer{payload, ends}, {.scratch = scratch}));
  Seed seed;
  append_number(seed, is_long ? std::uint16_t{0} : kShortCount);
  append_number(seed, encoded.scalar);
  append_number(seed, encoded.scalar2);
  append_number(seed, static_cast<std::uint8_t>(encoded.chunks | (is_long ? fuzz::kLongMark : 0)));
  append_number(seed, static_cast<std::uint8_t>(is_long ? number : encoded.chunks > 1 ? ends[0] : 0));
  for (std::uint32_t i = 0; is_long && i < 2; ++i) append_number(seed, i < encoded.chunks ? ends[i] : 0U);
  append(seed, Bytes(payload).first(encoded.payload_bytes));
  write("codec", "codec" + std::to_string(number) + kind, seed);
}

void make_payloads() {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    make_payload(i, 0.0, false, "-dense");
    make_payload(i, 0.9, false, "-sparse");
    make_payload(i, 0.9, true, "-long");
  }
}

void make_files() {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    std::vector<float> values(i % 3 == 0 ? 1 : 60);
    fill(values, i, 0.3);
    const std::vector<std::uint64_t> shape =
        values.size() == 1 ? std::vector<std::uint64_t>{} : std::vector<std::uint64_t>{3, 20};
    const TensorView tensor{values.data(), values.size(), DType::kF32};
    write("file", "codec" + std::to_string(i),
          sure(encode_file(tensor, shape, specs[i], Policy{fuzz::kMinElements})));
  }
}

void make_channel_states() {
  const std::vector<std::string> all = fuzz::channel_specs();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto channel = sure(make_channel(all[i], {Policy{fuzz::kMinElements}, Revert::kFold}));
    fuzz::Tensors tensors;
    fill(tensors.large, i, 0.5);
    fill(tensors.small, i, 0.5);
    sure(channel->encode(tensors.named(), {}));
    channel->revert();  // a residual wherever the codec has one
    Seed seed{static_cast<std::byte>(3 * i)};
    append(seed, sure(channel->save()));
    write("state", "channel" + std::to_string(i), seed);
  }
}

void make_reducer_states() {
  for (std::size_t i = 0; i < fuzz::kReducerSpecs.size(); ++i) {
    ReducerOptions options;
    options.policy = Policy{fuzz::kMinElements};
    const auto reducer = sure(make_reducer(fuzz::kReducerSpecs[i], options));
    Seed seed{static_cast<std::byte>(3 * i + 1)};
    append(seed, sure(reducer->save()));
    write("state", "reducer" + std::to_string(i), seed);
  }
}

void make_optimizer_states() {
  for (std::size_t i = 0; i < fuzz::kOptimizerSpecs.size(); ++i) {
    auto optimizer = sure(make_optimizer(fuzz::kOptimizerSpecs[i]));
    fuzz::Tensors tensors;
    if (!optimizer.step("w", tensors.large, tensors.large)) std::exit(1);
    if (!optimizer.step("b", tensors.small, tensors.small)) std::exit(1);
    Seed seed{static_cast<std::byte>(3 * i + 2)};
    append(seed, optimizer.save());
    write("state", "optimizer" + std::to_string(i), seed);
  }
}

// Until both have made all steps, each is played what the other has sent so far.
std::pair<fuzz::Script, fuzz::Script> served(const ServerOptions& options) {
  fuzz::Script pushes;
  fuzz::Script pulls;
  for (std::uint64_t round = 0; round < 2 * fuzz::kServedSteps + 4; ++round) {
    fuzz::Serving serving(options, pushes);
    while (serving.server->step(Clock::now()).value_or(false)) {
    }
    pulls = std::move(serving.transport.sent);
    fuzz::Working working(options, pulls);
    if (working.run()) return {pushes, pulls};
    pushes = std::move(working.transport.sent);
  }
  std::fprintf(stderr, "server and worker did not come to their end\n");
  std::exit(1);
}

void make_server_inputs() {
  const std::vector<ServerOptions> all = fuzz::server_options();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto seed_of = [&](fuzz::ServerInput kind) {
      return Seed{static_cast<std::byte>(static_cast<std::size_t>(kind) + fuzz::kServerInputs * i)};
    };
    const auto [pushes, pulls] = served(all[i]);
    Seed seed = seed_of(fuzz::ServerInput::kPushes);
    fuzz::append_script(seed, pushes, fuzz::Way::kPush);
    write("server", "pushes" + std::to_string(i), seed);
    seed = seed_of(fuzz::ServerInput::kPulls);
    fuzz::append_script(seed, pulls, fuzz::Way::kPull);
    write("server", "pulls" + std::to_string(i), seed);

    fuzz::Serving serving(all[i], pushes);
    sure(serving.server->step(Clock::now()));
    const std::vector<std::byte> state = sure(serving.server->save());
    seed = seed_of(fuzz::ServerInput::kServerState);
    append(seed, state);
    write("server", "server-state" + std::to_string(i), seed);
    fuzz::Working working(all[i], pulls);
    working.run();
    seed = seed_of(fuzz::ServerInput::kWorkerState);
    append(seed, sure(working.worker->save()));
    write("server", "worker-state" + std::to_string(i), seed);

    const SnapshotPlace place{.folder = corpus.string(), .settings = "lr=1"};
    if (!write_snapshot(place, fuzz::kSnapshotStep, Bytes(state).first(40 * i))) std::exit(1);
    const std::filesystem::path path = corpus / "rank-0.step-7.snapshot";
    std::ifstream file(path, std::ios::binary);
    seed = seed_of(fuzz::ServerInput::kSnapshot);
    append(seed, std::string(std::istreambuf_iterator<char>(file), {}));
    write("server", "snapshot" + std::to_string(i), seed);
    std::filesystem::remove(path);
  }
}

void make_specs() {
  std::size_t number = 0;
  const auto add = [&](std::string_view text) {
    Seed seed;
    append(seed, text);
    write("spec", "spec" + std::to_string(number++), seed);
  };
  for (const std::string& spec : specs) add(sure(make_codec(spec))->spec());
  for (const std::string_view spec : fuzz::kRulesSpecs) add(spec);
  for (const std::string_view spec : fuzz::kReducerSpecs) add(spec);
  for (const std::string_view spec : fuzz::kOptimizerSpecs) add(optimizer_spec(sure(parse_optimizer(spec))));
  for (const std::string_view text : {"sbc:p=0.1%", "nesterov:lr=1e-3", "rmsprop:alpha=0x1p-3", "adamw",
                                      "direct()", "ring((3lc))", "3lc:s=nan", "gcomp:,", ""}) {
    add(text);
  }
}

// The text of a trace.json; and behind a byte that chooses among them a file of keys, or of values.
void make_traces() {
  const auto add = [](const std::string& name, std::string_view text) {
    Seed seed;
    append(seed, text);
    write("trace", name, seed);
  };
  const std::string tensors =
      R"("tensors": [{"name": "w", "shape": [2, 3]}, {"name": "e", "shape": [9], "pairs": true}])";
  add("whole", R"({"format": 1, "model": "m", "optimizer": "o", "command": "c", )" + tensors +
                   R"(, "steps": [{"step": 1, "tensors": [{"values": "1/0.npy", "significance": "s.npy"}, )"
                   R"({"values": "a.dw", "keys": "k.npy"}]}, {"step": 5, "tensors": [null, null]}]})");
  add("empty", R"({"format": 1, "tensors": [], "steps": []})");
  add("leaves", R"({"format": 1, "tensors": [{"name": "w", "shape": []}], )"
                R"("steps": [{"step": 2, "tensors": [{"values": "../w.npy"}]}]})");
  const std::string keys = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }\n";
  Seed seed{std::byte{'k'}};
  append(seed, "\x93NUMPY\x01");
  seed.push_back(std::byte{0});
  append_number(seed, static_cast<std::uint16_t>(keys.size()));
  append(seed, keys);
  for (const std::int64_t key : {1, 5}) append_number(seed, static_cast<std::uint64_t>(key));
  write("trace", "keys", seed);
  const float values[] = {1, 2, 3, 4, 5, 6};
  const std::uint64_t shape[] = {2, 3};
  seed = {std::byte{'d'}};
  append(seed, sure(encode_file(TensorView{values, 6, DType::kF32}, shape, "fp32")));
  write("trace", "values", seed);
}

// Magic, version, length of the header, header, values.
void make_npys() {
  std::size_t number = 0;
  const auto add = [&](int version, std::string_view header, std::size_t values) {
    Seed seed;
    append(seed, "\x93NUMPY");
    seed.push_back(static_cast<std::byte>(version));
    seed.push_back(std::byte{0});
    if (version == 1) {
      append_number(seed, static_cast<std::uint16_t>(header.size()));
    } else {
      append_number(seed, static_cast<std::uint32_t>(header.size()));
    }
    append(seed, header);
    seed.resize(seed.size() + 4 * values, std::byte{0x3F});
    write("npy", "array" + std::to_string(number++), seed);
  };
  add(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }     \n", 12);
  add(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }\n", 5);
  add(3, "{'shape': (), 'fortran_order': False, 'descr': \"<f4\"}", 1);
  add(1, "{'descr':'<f4','fortran_order':False,'shape':(2L,0,7L),}", 0);
  add(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", 4);
  add(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 1);
  add(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (4,), }", 1);
  add(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", 4);
  add(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (65536, 65536), }", 1);
  add(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }", 1);
}

// Control messages of each kind; the harness repairs magic numbers and checksums, and its world has 5 ranks.
void make_control() {
  const auto add = [](const std::string& name, std::initializer_list<std::uint8_t> kinds, std::size_t bytes,
                      std::uint8_t text = 0, std::uint8_t fields = 0) {
    Seed seed{std::byte{9}};  // repaired, and in pieces of 3 bytes
    for (const std::uint8_t kind : kinds) {
      append_number(seed, std::uint64_t{0});
      append_number(seed, static_cast<std::uint16_t>(kind));
      append_number(seed, static_cast<std::uint16_t>(bytes));
      for (std::size_t i = 0; i < bytes; ++i) {
        seed.push_back(text != 0 && i >= 12 ? std::byte{text} : std::byte{i % 4 == 0});
        if (i == 2) seed.back() = std::byte{fields};
      }
    }
    write("control", name, seed);
  };
  add("abort-without-words", {1}, 12);
  add("abort", {1, 1}, 12 + 16, 'x');
  add("abort-no-utf8", {1}, 12 + 512, 0xFF);
  add("errors-with-fields", {1, 9}, 12 + 3 + 24, 0, 24);
  add("waiting", {2, 2, 2}, 12);
  add("numbers", {3, 5}, 8);              // goodbye, start
  add("here", {4}, 8 + 4);                // place, deaf
  add("vote", {6}, 8 + 16);               // number, ballot
  add("round", {7}, 4 + 8 + 16 + 1 + 1);  // number, decided, ballot, two sets
  add("verdict", {8}, 8 + 1);             // decided, a set
  add("lost", {9, 9}, 12 + 16, 'x');
}

// What a rank claims in the handshake (src/transport/tcp/handshake.h), for a world of 3.
struct Claims {
  std::uint16_t version = 9;
  std::uint8_t stream = 1;
  std::uint8_t role = 1;
  std::uint32_t rank = 2;
  std::uint32_t peer = 1;
  std::uint16_t text_bytes = 0;
  std::uint8_t problem = 0;
  std::uint16_t world_size = 3;
  std::uint16_t suspect = 0xFFFF;
  std::string text = "codec=3lc";
};

// Claims, a nonce and a proof, as the first byte says: to a listener 1, with the token 2, with the length and
// the digest of the text 4; and how many bytes come at a time.
Seed handshake_of(unsigned plan, const Claims& claims) {
  Seed seed{static_cast<std::byte>(plan)};
  append(seed, "DWDH");
  append_number(seed, claims.version);
  append_number(seed, claims.stream);
  append_number(seed, claims.role);
  append_number(seed, claims.rank);
  append_number(seed, claims.peer);
  append_number(seed, std::uint32_t{0});
  append_number(seed, claims.text_bytes);
  append_number(seed, claims.problem);
  append_number(seed, std::uint8_t{0});
  append_number(seed, claims.world_size);
  append_number(seed, claims.suspect);
  append_number(seed, std::uint64_t{1});
  seed.resize(seed.size() + 24 + 32 + 32);
  append(seed, claims.text);
  return seed;
}

// To rank 1, from rank 2 as it dials and from rank 0 as it listens.
void make_handshakes() {
  const auto add = [](const std::string& name, unsigned plan, const Claims& claims) {
    write("handshake", name, handshake_of(plan, claims));
  };
  add("listener-right", 0xFF, {});
  add("listener-stranger", 0xFD, {});
  add("listener-bytewise", 0x07, {.stream = 2});
  add("listener-version", 0xFF, {.version = 10});
  add("listener-other-settings", 0x37, {.text = "codec=sbc \xFF\x1B[2J"});
  add("listener-problem", 0xF7, {.problem = 17, .suspect = 0, .text = "out of paper\n\xE2\x80\xAE"});
  add("listener-long-text", 0xFB, {.text_bytes = 1025});
  Seed garbage{std::byte{0x21}};
  append(garbage, "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
  garbage.resize(128, std::byte{'x'});
  write("handshake", "listener-garbage", garbage);
  add("dialer-right", 0xFE, {.role = 2, .rank = 0});
  add("dialer-stranger", 0x44, {.role = 2, .rank = 0});
  add("dialer-other-world", 0x16, {.role = 2, .rank = 0, .world_size = 4});
  add("dialer-reflected", 0xFE, {.rank = 1, .peer = 0});
}

// Behind a byte that says how far the ends come before: a record of the handshake, or of what follows it.
void make_tls() {
  for (const int plan : {0, 1, 2, 3, 4, 5, 6, 7, 254, 255}) {
    Seed seed{static_cast<std::byte>(plan)};
    append(seed, std::string_view("\x16\x03\x03\x00\x10", 5));
    append(seed, "garbage in a record");
    write("tls", "record" + std::to_string(plan), seed);
  }
  Seed seed{std::byte{0xFF}};
  append(seed, std::string_view("\x17\x03\x03\x00\x20", 5));
  seed.resize(seed.size() + 32);
  write("tls", "application", seed);
}

// Whether the harness is rank 0, how many bytes come at a time, and what it changes in an address.
void make_addresses() {
  const auto add = [](const std::string& name, std::initializer_list<int> bytes) {
    Seed seed;
    for (const int byte : bytes) seed.push_back(static_cast<std::byte>(byte));
    write("addresses", name, seed);
  };
  add("to-rank-0", {0, 255, 1, 4, '1'});
  add("from-rank-0", {1, 7, 0, 0, 2, 0, 5, 2, 3});
}

void make_rows() {
  const auto add = [](const std::string& name, std::string_view text) {
    Seed seed;
    append(seed, text);
    write("rows", name, seed);
  };
  add("all-forms", "+1 1:0.5 3:-2e-1 7:1.\n-1\n# c\n  0 qid:7 0:1 4294967294:.5 # x\n3.5 2:1e3\n");
  add("unsorted", "1 5:1 2:3 5:0.5 9223372036854775808:1e-50\n-1 1:nan\n");
}

// Programs for the harnesses that read their input as commands.
void make_programs() {
  CounterRng rng(20260101);
  for (const std::string target : {"data", "engine", "segments", "elastic"}) {
    for (int i = 0; i < 24; ++i) {
      Seed seed(8 + rng.next() % 120);
      for (std::byte& byte : seed) {
        byte = static_cast<std::byte>(rng.next() % (i % 2 == 0 ? 256 : 24));
      }
      write(target, "program" + std::to_string(i), seed);
    }
  }
}

void make_patches() {
  for (const WeightType type : fuzz::kPatchTypes) {
    const fuzz::PatchSides sides = fuzz::patch_sides(type);
    write("patch", std::string(weight_type_name(type)), sure(make_patch(sides.from, sides.to, type)));
  }
}

void make_patch_files() {
  const testing::TemporaryFolder folder;
  for (const bool reshaped : {false, true}) {
    testing::write_file(folder.path("old"), fuzz::patch_file_model(false, reshaped));
    testing::write_file(folder.path("new"), fuzz::patch_file_model(true, reshaped));
    const std::string patch = folder.path(reshaped ? "reshaped" : "changed");
    if (!make_patch_file(folder.path("old"), folder.path("new"), patch)) std::exit(1);
    Seed seed;
    append(seed, testing::read_file(patch));
    write("patch_file", reshaped ? "reshaped" : "changed", seed);
  }
}

}  // namespace
}  // namespace deltawire

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  deltawire::corpus = arguments[1];
  deltawire::make_messages();
  deltawire::make_payloads();
  deltawire::make_files();
  deltawire::make_channel_states();
  deltawire::make_reducer_states();
  deltawire::make_optimizer_states();
  deltawire::make_server_inputs();
  deltawire::make_specs();
  deltawire::make_npys();
  deltawire::make_traces();
  deltawire::make_handshakes();
  deltawire::make_tls();
  deltawire::make_addresses();
  deltawire::make_rows();
  deltawire::make_control();
  deltawire::make_programs();
  deltawire::make_patches();
  deltawire::make_patch_files();
  return 0;
}
