#include "linear/commands/model_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include <nlohmann/json.hpp>

#include "cli/arrays/archive.h"
#include "cli/arrays/array_reader.h"
#include "cli/output_file.h"

namespace deltawire::linear {
namespace {

using Members = std::map<std::string, std::vector<std::byte>>;

void add_member(cli::ArchiveWriter& archive, const std::string& name, const std::string& front,
                Bytes values) {
  archive.add(name + ".npy", front.size() + values.size());
  archive.write(std::as_bytes(std::span(front)));
  archive.write(values);
}

cli::Failure no_model(const std::string& path) {
  return cli::failed(cli::input_name(path) + ": is not a model of 'deltawire train linear'; train it again");
}

cli::Failure is_packed(const std::string& name) {
  return cli::failed(name + ": its arrays are larger than the file, which 'deltawire train linear' writes " +
                     "unpacked; save them with numpy.savez, or train it again");
}

// The members of a model are not packed, so together they are no larger than its file: a packed one could be
// of any size.
Members read_members(const std::string& path) {
  auto input = cli::InputFile::open(path);
  const auto front = input.peek(cli::kZipMagic.size());
  if (!std::ranges::equal(front, std::as_bytes(std::span(cli::kZipMagic)))) throw no_model(path);
  input.settle();
  auto archive = cli::ArchiveReader::open(input);
  std::uint64_t left = input.read()->bytes_left().value_or(0);
  Members members;
  while (const auto name = archive->next()) {
    std::vector<std::byte>& bytes = members[*name];
    while (true) {
      const std::size_t had = bytes.size();
      bytes.resize(had + cli::kCopyBlockBytes);
      const auto got =
          cli::value_or_failed(archive->read(std::span(bytes).subspan(had)), input.name() + ": ");
      if (got > left) throw is_packed(input.name());
      left -= got;
      bytes.resize(had + got);
      if (got < cli::kCopyBlockBytes) break;
    }
  }
  return members;
}

// The values of an array of so many dimensions.
std::vector<float> floats_in(Bytes npy, const std::string& path, std::size_t dimensions) {
  const auto array = cli::open_npy(std::make_unique<cli::MemorySource>(npy), path);
  if (array->info().shape.size() != dimensions) throw no_model(path);
  return cli::read_floats(*array, path);
}

// The text behind the header of an array of one byte string.
std::string text_in(const std::vector<std::byte>& npy) {
  const std::string_view all(reinterpret_cast<const char*>(npy.data()), npy.size());
  const std::size_t line = all.find('\n', 10);
  if (all.size() < 10 || line == std::string_view::npos) return {};
  std::string text(all.substr(line + 1));
  text.resize(std::strlen(text.c_str()));
  return text;
}

}  // namespace

void write_model(const std::string& path, const LinearModel& model, bool force) {
  auto file = cli::OutputFile::create(path, force);
  auto archive = cli::ArchiveWriter::begin([&](Bytes bytes) { file.write(bytes); });
  const std::string shape = "(" + std::to_string(model.weights.size()) + ",)";
  add_member(archive, "weights", cli::npy_header("<f4", shape), std::as_bytes(std::span(model.weights)));
  add_member(archive, "bias", cli::npy_header("<f4", "()"), std::as_bytes(std::span(&model.bias, 1)));
  add_member(archive, "settings", cli::npy_header("|S" + std::to_string(model.settings.size()), "()"),
             std::as_bytes(std::span(model.settings)));
  archive.finish();
  file.flush();
  file.commit();
}

LinearModel read_model(const std::string& path) {
  auto members = read_members(path);
  for (const char* name : {"weights.npy", "bias.npy", "settings.npy"}) {
    if (!members.contains(name)) throw no_model(path);
  }
  LinearModel model;
  model.weights = floats_in(members["weights.npy"], path, 1);
  model.bias = floats_in(members["bias.npy"], path, 0).front();
  model.settings = text_in(members["settings.npy"]);
  const auto settings = nlohmann::json::parse(model.settings, nullptr, false);
  if (!settings.is_object() || !settings.contains("loss") || !settings["loss"].is_string() ||
      !settings.contains("hash_bits") || !settings["hash_bits"].is_number_integer()) {
    throw no_model(path);
  }
  const auto loss = find_loss(settings["loss"].get<std::string>());
  model.hash_bits = settings["hash_bits"].get<int>();
  if (!loss || model.hash_bits < 0 || model.hash_bits > 31) throw no_model(path);
  model.loss = *loss;
  return model;
}

}  // namespace deltawire::linear
