// How fast codecs are, on this machine, against a copy and general compressors. Built on Google
// Benchmark, whose options it takes, e.g.
//
//   coding --benchmark_filter='(encode|decode)/3lc/.*/25M'       some rows; their names are
//                                                                <way>/<spec>/<input>/<size>/<target>
//   coding --benchmark_out=now.json                              for scripts/bench_compare.py
//   coding --spec=3lc:s=1.5 --input=gradient.f32                 another spec, recorded values
//
// Every row is verified before it is measured.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "coding/measure.h"
#include "coding/rows.h"
#include "deltawire/codec.h"

namespace deltawire::bench {
namespace {

std::vector<CodecCase> usual_cases() {
  return {{"3lc", {"normal", "laplace", "uniform", "normal.bf16", "normal.fp16"}},
          {"3lc:runs=off", {"uniform"}},
          {"3lc:s=1.75", {"normal"}},
          {"sbc:p=0.1%", {"laplace"}},
          {"sbc:p=1%", {"laplace", "laplace.bf16", "laplace.fp16"}},
          {"gcomp", {"normal", "weights", "layers", "zeros", "random"}},
          {"gcomp:levels=4", {"weights"}},
          {"gcomp:cut=6", {"normal"}},
          {"gcomp:lossless=on", {"normal"}},
          {"gcomp:values=bf16", {"normal", "normal.bf16"}},
          {"gcomp:values=fp16", {"normal.fp16"}},
          {"fastsgd", {"laplace"}},
          {"fastsgd:b=1.1892071,tau=110", {"clicks"}},
          {"fastsgd:b=1.1892071,tau=110,keys=auto", {"clicks"}},
          {"logquant", {"laplace"}},
          {"sketchml", {"clicks"}},
          {"bf16", {"normal"}},
          {"int8", {"normal", "normal.bf16", "normal.fp16"}},
          {"topk", {"normal", "normal.bf16", "normal.fp16"}},
          {"onebit", {"normal"}},
          {"randomk:k=1%", {"normal"}},
          {"fp16", {"normal"}},
          {"fp8", {"normal"}},
          {"blockint", {"normal"}},
          {"blockint:bits=4", {"normal"}},
          {"fp4", {"normal"}},
          {"truncate", {"normal"}},
          {"zstd", {"normal", "zeros"}},
          {"zlib", {"normal", "zeros"}},
          {"zstd:level=1,planes=off", {"normal", "layers", "zeros"}},
          {"zlib:level=1,planes=off", {"normal", "layers", "zeros"}},
          {"fp32", {"normal"}}};
}

// Takes what begins with `option` out of the arguments.
std::string option_value(int& count, char** arguments, std::string_view option) {
  std::string value;
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument.starts_with(option)) {
      value = argument.substr(option.size());
    } else {
      arguments[kept++] = arguments[i];
    }
  }
  count = kept;
  return value;
}

void describe_machine() {
  benchmark::AddCustomContext("cpu", cpu_name());
  for (const Size& size : kSizes) {
    char rate[32];
    std::snprintf(rate, sizeof rate, "%.1f GB/s", copy_rate(size.count));
    benchmark::AddCustomContext(std::string("copy of ") + size.name, rate);
  }
  std::string targets;
  for (const KernelTarget& target : kernel_targets()) {
    if (target.runs_here) targets += (targets.empty() ? "" : ", ") + std::string(target.name);
  }
  benchmark::AddCustomContext("targets", targets);
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  const bool huge =
      tunables != nullptr && std::string_view(tunables).find("hugetlb=1") != std::string_view::npos;
  benchmark::AddCustomContext("pages", huge ? "huge" : "usual");
}

int run(int count, char** arguments) {
  const std::string spec = option_value(count, arguments, "--spec=");
  const std::string input = option_value(count, arguments, "--input=");
  std::vector<CodecCase> cases = usual_cases();
  if (!spec.empty()) cases = {{spec, {"normal"}}};
  if (!input.empty()) {
    (void)make_input(input, 1);  // throws where there is none
    for (CodecCase& each : cases) each.inputs = {input};
  }
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  describe_machine();
  register_codecs(cases);
  register_channels(cases);
  if (spec.empty() && input.empty()) register_selection();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace deltawire::bench

int main(int count, char** arguments) {
  try {
    return deltawire::bench::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "coding: %s\n", error.what());
    return 1;
  }
}
