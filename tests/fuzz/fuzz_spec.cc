// Spec strings, as they come from a command line or a configuration: codecs, rules of them and recipes,
// reducers, optimizers. What is accepted has a canonical spec that is accepted too and says the same.
#include <cstdlib>
#include <string>
#include <string_view>

#include "deltawire/channel.h"
#include "deltawire/codec.h"
#include "deltawire/optimizer.h"
#include "deltawire/reducer.h"
#include "deltawire/spec.h"

namespace deltawire {
namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

void check(std::string_view text) {
  if (const auto codec = make_codec(text)) {
    const auto again = make_codec((*codec)->spec());
    expect(again.has_value() && (*again)->spec() == (*codec)->spec());
  }
  if (const auto channel = make_channel(text)) {
    const auto again = make_channel((*channel)->spec());
    expect(again.has_value() && (*again)->spec() == (*channel)->spec());
  }
  const auto reducer = make_reducer(text);
  if (reducer) {
    const auto again = make_reducer((*reducer)->spec());
    expect(again.has_value() && (*again)->spec() == (*reducer)->spec());
  }
  // A value says the same as the reducer, and exists for what holds back besides.
  if (const auto spec = Spec::parse(text)) {
    expect(reducer.has_value() != spec->holds_back);
    expect(!reducer || (*reducer)->spec() == spec->text);
    expect(spec->text == spec->pattern + "(" + spec->codecs + ")");
    std::string rules;
    for (const SpecRule& rule : spec->rules) rules += (rules.empty() ? "" : ", ") + rule.text;
    expect(rules == spec->codecs);
  } else {
    expect(!reducer);
  }
  if (const auto settings = parse_optimizer(text)) {
    expect(check_settings(*settings).has_value());
    const auto again = parse_optimizer(optimizer_spec(*settings));
    expect(again.has_value() && *again == *settings);
  }
}

}  // namespace
}  // namespace deltawire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
