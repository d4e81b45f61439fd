// deltawire diff A B: the differences between the arrays of two files.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/arrays/array_file.h"
#include "cli/commands.h"
#include "cli/measure/errors.h"
#include "cli/number_text.h"
#include "cli/progress.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

// As in cmp and diff: 1 is an answer, not a failure.
constexpr int kDifferent = 1;
constexpr int kTrouble = 2;

struct DiffOptions {
  std::string a;
  std::string b;
  bool json = false;
  bool quiet = false;
};

// One name, in either file or both.
struct Compared {
  std::string name;
  std::optional<ArrayInfo> a;  // none: only in the other
  std::optional<ArrayInfo> b;
  Difference difference;  // where the shapes are equal

  bool comparable() const noexcept { return a && b && a->shape == b->shape; }
  bool equal() const noexcept { return comparable() && difference.equal(); }
};

const ArrayFile::Member* member_named(const ArrayFile& file, const std::string& name) {
  const auto found = std::ranges::find(file.members(), name, &ArrayFile::Member::name);
  return found == file.members().end() ? nullptr : &*found;
}

Outcome<void> compare_values(ArrayReader& a, ArrayReader& b, const std::string& name,
                             Difference& difference) {
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 18;
  std::vector<std::byte> raw(kBlock * sizeof(double));
  std::vector<double> wide_a(kBlock);
  std::vector<double> wide_b(kBlock);
  Progress progress;
  const std::uint64_t count = a.info().count;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t now = std::min(kBlock, count - done);
    if (done > 0) progress.show(grouped(done) + " of " + grouped(count) + " values: " + name);
    for (const auto& [array, wide] : {std::pair(&a, wide_a.data()), std::pair(&b, wide_b.data())}) {
      if (auto read = array->read(raw.data(), now); !read) return read;
      widen_values(raw.data(), array->info().type, now, wide);
    }
    difference.add(wide_a.data(), wide_b.data(), now);
    done += now;
  }
  return {};
}

Outcome<Compared> compare_one(ArrayFile& file_a, ArrayFile& file_b, const std::string& name) {
  Compared compared;
  compared.name = name;
  std::unique_ptr<ArrayReader> readers[2];
  std::optional<ArrayInfo>* infos[2] = {&compared.a, &compared.b};
  ArrayFile* files[2] = {&file_a, &file_b};
  for (int side = 0; side < 2; ++side) {
    const ArrayFile::Member* member = member_named(*files[side], name);
    if (member == nullptr) continue;
    auto array = files[side]->array(*member);
    if (!array) return tl::unexpected<Failure>(array.error());
    readers[side] = *std::move(array);
    *infos[side] = readers[side]->info();
  }
  if (!compared.comparable()) return compared;
  if (auto done = compare_values(*readers[0], *readers[1], name, compared.difference); !done) {
    return tl::unexpected<Failure>(done.error());
  }
  return compared;
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// The position of a row-major index: "[3, 17]".
std::string place_text(std::uint64_t index, const std::vector<std::uint64_t>& shape) {
  std::vector<std::uint64_t> place(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    place[i] = index % shape[i];
    index /= shape[i];
  }
  std::string text = "[";
  for (std::size_t i = 0; i < place.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(place[i]);
  return text + "]";
}

std::string type_text(const ArrayInfo& info) {
  return std::string(value_name(info.type)) + " " + shape_text(info.shape);
}

void print_histogram(const Difference& difference) {
  constexpr double kBarWidth = 40;
  const auto& counts = difference.histogram();
  const auto most = static_cast<double>(std::max<std::uint64_t>(1, *std::ranges::max_element(counts)));
  std::cout << "  |b - a|\n";
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const auto bar = static_cast<std::size_t>(std::lround(kBarWidth * static_cast<double>(counts[i]) / most));
    char row[64];
    std::snprintf(row, sizeof row, "    %-16s %15s  ", class_name(i).c_str(), grouped(counts[i]).c_str());
    std::cout << row << std::string(std::max<std::size_t>(bar, 1), '#') << "\n";
  }
}

void print_text(const Compared& compared, const DiffOptions& options) {
  const std::string who = compared.name.empty() ? "" : compared.name + ": ";
  if (!compared.a || !compared.b) {
    std::cout << who << "only in " << input_name(compared.a ? options.a : options.b) << "\n";
    return;
  }
  if (!compared.comparable()) {
    std::cout << who << "shapes differ: " << shape_text(compared.a->shape) << " and "
              << shape_text(compared.b->shape) << "\n";
    return;
  }
  const Difference& difference = compared.difference;
  const bool one_type = compared.a->type == compared.b->type;
  std::cout << who << type_text(*compared.a)
            << (one_type ? "" : " and " + std::string(value_name(compared.b->type))) << ", ";
  if (difference.equal()) {
    std::cout << "equal\n";
    return;
  }
  std::cout << grouped(difference.different()) << " of " << grouped(difference.count()) << " values differ\n";
  if (difference.count() > difference.not_finite()) {
    const double cosine = difference.cosine();
    std::cout << "  relative L2     " << number(difference.relative_l2()) << "\n"
              << "  cosine          " << (std::isnan(cosine) ? "none: one is all zeros" : number(cosine))
              << "\n"
              << "  largest error   " << number(difference.largest()) << " at "
              << place_text(difference.largest_at(), compared.a->shape) << ": "
              << number(difference.a_there()) << " and " << number(difference.b_there()) << "\n";
  }
  if (difference.not_finite_different() > 0) {
    std::cout << "  not finite      " << grouped(difference.not_finite_different())
              << " values differ that are NaN or Inf in one, first at "
              << place_text(difference.first_not_finite_different(), compared.a->shape)
              << "; left out above\n";
  }
  print_histogram(difference);
}

Json to_json(const ArrayInfo& info) {
  return {{"dtype", value_name(info.type)}, {"shape", info.shape}};
}

// JSON has no NaN and no infinity: null.
Json to_json(const Compared& compared) {
  Json array{{"name", compared.name},
             {"equal", compared.equal()},
             {"a", compared.a ? to_json(*compared.a) : Json()},
             {"b", compared.b ? to_json(*compared.b) : Json()}};
  if (!compared.comparable()) return array;
  const Difference& difference = compared.difference;
  array["values"] = difference.count();
  array["different"] = difference.different();
  array["relative_l2"] = difference.relative_l2();
  array["cosine"] = difference.cosine();
  array["largest_error"] = {{"value", difference.largest()},
                            {"index", difference.largest_at()},
                            {"a", difference.a_there()},
                            {"b", difference.b_there()}};
  array["not_finite"] = difference.not_finite();
  array["not_finite_different"] = difference.not_finite_different();
  Json histogram = Json::array();
  for (std::size_t i = 0; i < Difference::kClasses; ++i) {
    histogram.push_back({{"error", class_name(i)}, {"values", difference.histogram()[i]}});
  }
  array["histogram"] = std::move(histogram);
  return array;
}

// In the order of a, then those only in b.
std::vector<std::string> names_of(const ArrayFile& a, const ArrayFile& b) {
  std::vector<std::string> names;
  for (const auto& member : a.members()) names.push_back(member.name);
  for (const auto& member : b.members()) {
    if (member_named(a, member.name) == nullptr) names.push_back(member.name);
  }
  return names;
}

Outcome<bool> diff(const DiffOptions& options) {
  if (options.a == "-" && options.b == "-") return misused("A and B can't both be standard input; name one");
  auto a = ArrayFile::open(options.a);
  if (!a) return tl::unexpected<Failure>(a.error());
  auto b = ArrayFile::open(options.b);
  if (!b) return tl::unexpected<Failure>(b.error());
  if (a->is_archive() != b->is_archive()) {
    return misused((a->is_archive() ? a->name() : b->name()) + " holds arrays by name, " +
                   (a->is_archive() ? b->name() : a->name()) +
                   " a single one; give two archives or two single arrays");
  }
  bool equal = true;
  Json arrays = Json::array();
  for (const std::string& name : names_of(*a, *b)) {
    const auto compared = compare_one(*a, *b, name);
    if (!compared) return tl::unexpected<Failure>(compared.error());
    equal = equal && compared->equal();
    if (options.json) {
      arrays.push_back(to_json(*compared));
    } else if (!options.quiet) {
      print_text(*compared, options);
    }
  }
  if (options.json) {
    const Json all{{"a", a->name()}, {"b", b->name()}, {"equal", equal}, {"arrays", std::move(arrays)}};
    std::cout << all.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  return equal;
}

Outcome<void> run(const DiffOptions& options) {
  const auto equal = diff(options);
  if (!equal) return tl::unexpected<Failure>(Failure{kTrouble, equal.error().message});
  if (!*equal) return tl::unexpected<Failure>(Failure{kDifferent, {}});
  return {};
}

}  // namespace

void add_diff_command(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("diff", "Show the differences between the arrays of two files");
  const auto options = std::make_shared<DiffOptions>();
  command->add_option("A", options->a, "A .npy, .npz, .dw or .dwz file; - for standard input")->required();
  command->add_option("B", options->b, "The file to compare with A")->required();
  CLI::Option* json = command->add_flag("--json", options->json, "Print JSON for programs");
  command->add_flag("--quiet", options->quiet, "Print nothing; only set the exit status")->excludes(json);
  command->footer(
      "Errors are those of B relative to A, computed in float64. NaN equals NaN. Arrays of archives\n"
      "are compared by name.\n"
      "Exit status: 0 all values equal, 1 values, shapes or names differ, 2 error.\n\n"
      "Examples:\n"
      "  deltawire diff gradient.npy gradient.dw\n"
      "  deltawire diff before.npz after.npz --json | jq '.arrays[] | {name, relative_l2}'\n"
      "  deltawire diff --quiet a.npy b.npy && echo the same\n");
  command->callback([&chosen, options] { chosen = [options] { return run(*options); }; });
}

}  // namespace deltawire::cli
