#include <charconv>

#include "cli/arrays/npy.h"

namespace deltawire::cli {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\f\v";

// Reads literals one after another. Every member returns false if the text is something else.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool take(char wanted) {
    skip_spaces();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool take_word(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  bool take_string(std::string& out) {
    skip_spaces();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return false;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return false;
    out = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }

  bool take_number(std::uint64_t& out) {
    skip_spaces();
    const auto [behind, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(behind - rest_.data()));
    if (rest_.starts_with('L')) rest_.remove_prefix(1);  // by Python 2
    return true;
  }

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }

  bool next_is(char wanted) {
    skip_spaces();
    return !rest_.empty() && rest_.front() == wanted;
  }

 private:
  void skip_spaces() {
    const std::size_t spaces = rest_.find_first_not_of(kSpaces);
    rest_.remove_prefix(spaces == std::string_view::npos ? rest_.size() : spaces);
  }

  std::string_view rest_;
};

bool take_shape(Reader& reader, std::vector<std::uint64_t>& shape) {
  if (!reader.take('(')) return false;
  while (!reader.take(')')) {
    std::uint64_t extent = 0;
    if (!reader.take_number(extent)) return false;
    shape.push_back(extent);
    if (!reader.take(',') && !reader.next_is(')')) return false;
  }
  return true;
}

bool take_truth(Reader& reader, bool& truth) {
  truth = reader.take_word("True");
  return truth || reader.take_word("False");
}

// As numpy.save would write it. Others write "=f4", "f4" or "float32" too, all of which NumPy reads.
std::string with_byte_order(const std::string& descr) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"float16", "<f2"}, {"float32", "<f4"}, {"float64", "<f8"}, {"int64", "<i8"}};
  for (const auto& [name, saved] : kNames) {
    if (descr == name) return std::string(saved);
  }
  const bool has_order = descr.starts_with('=');
  const std::string_view number = std::string_view(descr).substr(has_order ? 1 : 0);
  const bool of_machine = number.size() > 1 &&
                          std::string_view("fiuc").find(number[0]) != std::string_view::npos &&
                          number.find_first_not_of("0123456789", 1) == std::string_view::npos;
  return of_machine ? "<" + std::string(number) : descr;
}

Failure unreadable(std::string_view what) {
  return failed("the .npy header has " + std::string(what) + "; save the array again with numpy.save");
}

}  // namespace

NpyHeader parse_npy_header(std::string_view text) {
  Reader reader(text);
  NpyHeader header;
  bool has_descr = false;
  bool has_order = false;
  bool has_shape = false;
  if (!reader.take('{')) throw unreadable("no dictionary");
  while (!reader.take('}')) {
    std::string key;
    if (!reader.take_string(key) || !reader.take(':')) throw unreadable("a broken dictionary");
    if (key == "descr" && !has_descr) {
      // A list is a structured dtype: no use to read on.
      if (reader.next_is('[')) return NpyHeader{};
      if (!reader.take_string(header.descr)) throw unreadable("no readable 'descr'");
      header.descr = with_byte_order(std::move(header.descr));
      has_descr = true;
    } else if (key == "fortran_order" && !has_order) {
      if (!take_truth(reader, header.fortran_order)) throw unreadable("no readable 'fortran_order'");
      has_order = true;
    } else if (key == "shape" && !has_shape) {
      if (!take_shape(reader, header.shape)) throw unreadable("no readable 'shape'");
      has_shape = true;
    } else {
      throw unreadable("an unexpected key");
    }
    if (!reader.take(',') && !reader.next_is('}')) throw unreadable("a broken dictionary");
  }
  if (!has_descr || !has_order || !has_shape)
    throw unreadable("not all of 'descr', 'fortran_order', 'shape'");
  if (!reader.at_end()) throw unreadable("text after the dictionary");
  return header;
}

}  // namespace deltawire::cli
