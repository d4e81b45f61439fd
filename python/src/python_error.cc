#include "python_error.h"

#include <string>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {

namespace {

nb::object rank_or_none(int rank) {
  return rank == kNoRank ? nb::none() : nb::object(nb::int_(rank));
}

// Names from the caller may have line breaks. Bytes that are no UTF-8 could not become a str, and an
// exception that can't be made would end the program.
nb::object line_or_none(const std::string& text) {
  return text.empty() ? nb::none() : nb::cast(printable_line(text));
}

int rank_in(nb::handle exception, const char* name) {
  const nb::object value = nb::getattr(exception, name, nb::none());
  return value.is_none() ? kNoRank : nb::cast<int>(value);
}

std::string line_in(nb::handle exception, const char* name) {
  const nb::object value = nb::getattr(exception, name, nb::none());
  return value.is_none() ? std::string() : nb::cast<std::string>(value);
}

// kAborted for a code that no mesh has, such as "NoQuorum", which ends one process's session.
ErrorCode code_named(const std::string& name) {
  for (int i = 1; i < static_cast<int>(ErrorCode::kExcluded); ++i) {
    if (error_code_name(static_cast<ErrorCode>(i)) == name) return static_cast<ErrorCode>(i);
  }
  return ErrorCode::kAborted;
}

}  // namespace

nb::object make_exception(const Error& error) {
  nb::object last_committed_step = nb::none();
  if (error.last_committed_step != kNoStep) last_committed_step = nb::int_(error.last_committed_step);
  return nb::module_::import_("deltawire.errors")
      .attr("make_error")(
          error_code_name(error.code), printable_line(error.message), rank_or_none(error.suspect),
          last_committed_step, "reporter"_a = rank_or_none(error.reporter),
          "waits_for"_a = rank_or_none(error.waits_for), "ranks"_a = nb::tuple(nb::cast(error.ranks)),
          "tensor"_a = line_or_none(error.tensor), "advice"_a = line_or_none(error.advice));
}

Error error_of(nb::handle exception) {
  const std::string text = nb::cast<std::string>(nb::str(exception));
  if (!nb::isinstance(exception, nb::module_::import_("deltawire.errors").attr("DeltawireError"))) {
    const auto type = nb::cast<std::string>(exception.type().attr("__name__"));
    return {type.ends_with("MemoryError") ? ErrorCode::kNoMemory : ErrorCode::kSystem,
            printable_line("on the device: " + type + ": " + text, 1000)};
  }
  return {.code = code_named(line_in(exception, "code")),
          .message = line_in(exception, "message"),
          .suspect = rank_in(exception, "suspect"),
          .reporter = rank_in(exception, "reporter"),
          .waits_for = rank_in(exception, "waits_for"),
          .ranks = nb::cast<std::vector<int>>(exception.attr("ranks")),
          .tensor = line_in(exception, "tensor"),
          .advice = line_in(exception, "advice")};
}

Error error_of(const nb::python_error& raised) {
  return error_of(raised.value());
}

void raise(const Error& error) {
  const nb::object exception = make_exception(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace deltawire::python
