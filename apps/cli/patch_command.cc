// deltawire patch make, apply, verify, inspect, merge: patches between models in files
// (docs/reference/patch-files.md).
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "deltawire/patch_file.h"
#include "deltawire/safetensors.h"
#include "deltawire/workers.h"

namespace deltawire::cli {
namespace {

using PatchOutput = nlohmann::ordered_json;

constexpr std::uint64_t kMegabyte = 1'000'000;

// Of patches without a digest of the new file.
constexpr const char* kTensorsAlone =
    "the new tensors bit for bit (the patch has no digest of the file's header)";

struct PatchPaths {
  std::string from;  // the old model
  std::string to;    // the new one
  std::string patch;
  std::vector<std::string> merged;  // the patches that `patch` is to stand for
  std::string from_name;
  std::string to_name;
  bool force = false;
};

// Files are read in any order, and written at several places: pipes can't be.
void check_paths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path == "-") throw misused("- is no file: 'deltawire patch' reads and writes files alone; name one");
  }
}

// Runs `call` with workers, progress and interruption.
void run_long(const PatchPaths& paths, const std::string& doing, const auto& call,
              bool* has_file_digest = nullptr) {
  const auto workers = Workers::of_process();
  Progress progress;
  PatchFileOptions options;
  options.replace = paths.force;
  options.from = paths.from_name;
  options.to = paths.to_name;
  options.workers = workers.get();
  options.has_file_digest = has_file_digest;
  options.progress = [&](std::uint64_t done, std::uint64_t all) {
    if (all >= 100 * kMegabyte) {
      progress.show(doing + ": " + grouped(done / kMegabyte) + " of " + grouped(all / kMegabyte) + " MB");
    }
    return !interrupted();
  };
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of the file's size is an error of writing
  const Status done = call(options);
  if (done) return;
  const int status = done.error().code == ErrorCode::kAborted ? kExitInterrupted : kExitFailure;
  throw Failure{status, done.error().message};
}

// Before any work: whether the output can be written. From the trial's file on, a signal is an interruption.
void check_output(const std::string& path, bool force, const std::vector<std::string>& inputs) {
  catch_interrupts();
  (void)OutputFile::create(path, force, inputs);
}

std::uint64_t bytes_of_file(const std::string& path) {
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(path, unknown);
  return unknown ? 0 : bytes;
}

std::string size_text(std::uint64_t whole, std::uint64_t bytes) {
  return times_smaller_text(static_cast<double>(whole) / static_cast<double>(bytes));
}

// `model` is the one that the patch is compared with.
void report_patch(const std::string& patch, const std::string& model_path, const char* model) {
  const std::uint64_t bytes = bytes_of_file(patch);
  const std::uint64_t whole = bytes_of_file(model_path);
  std::cout << printable_line(patch) << ": " << grouped(bytes) << " bytes";
  if (bytes > 0 && whole > 0)
    std::cout << ", " << size_text(whole, bytes) << " than the " << model << " model";
  std::cout << "\n";
}

void make(const PatchPaths& paths) {
  const std::string& patch = paths.patch;
  check_paths({paths.from, paths.to, patch});
  check_output(patch, paths.force, {paths.from, paths.to});
  run_long(paths, "comparing", [&](const PatchFileOptions& options) {
    return make_patch_file(paths.from, paths.to, patch, options);
  });
  report_patch(patch, paths.to, "new");
}

void apply(const PatchPaths& paths) {
  const std::string& patch = paths.patch;
  check_paths({paths.from, patch, paths.to});
  check_output(paths.to, paths.force, {paths.from, patch});
  bool whole = false;
  const auto call = [&](const PatchFileOptions& options) {
    return apply_patch_file(paths.from, patch, paths.to, options);
  };
  run_long(paths, "patching", call, &whole);
  std::cout << printable_line(paths.to) << ": " << grouped(bytes_of_file(paths.to)) << " bytes, "
            << (whole ? "the new model bit for bit" : kTensorsAlone) << "\n";
}

void verify(const PatchPaths& paths) {
  const std::string& patch = paths.patch;
  check_paths({paths.from, patch});
  catch_interrupts();
  bool whole = false;
  const auto call = [&](const PatchFileOptions& options) {
    return verify_patch_file(paths.from, patch, options);
  };
  run_long(paths, "verifying", call, &whole);
  std::cout << printable_line(patch) << ": " << (whole ? "right" : kTensorsAlone) << ", and made from "
            << printable_line(paths.from) << "\n";
}

void merge(const PatchPaths& paths) {
  std::vector<std::string> inputs = paths.merged;
  inputs.push_back(paths.from);
  check_paths(inputs);
  check_paths({paths.patch});
  check_output(paths.patch, paths.force, inputs);
  run_long(paths, "merging", [&](const PatchFileOptions& options) {
    return merge_patch_files(paths.from, paths.merged, paths.patch, options);
  });
  report_patch(paths.patch, paths.from, "old");
}

PatchOutput tensor_json(const PatchFileTensor& tensor) {
  PatchOutput json = {
      {"name", tensor.name}, {"full", tensor.full}, {"bytes", tensor.bytes}, {"new_bytes", tensor.new_bytes}};
  if (tensor.full) return json;
  json.update({{"type", weight_type_name(tensor.patch.type)},
               {"elements", tensor.patch.elements},
               {"changes", tensor.patch.changes},
               {"chunks", tensor.patch.chunks},
               {"changed_chunks", tensor.patch.changed_chunks},
               {"full_chunks", tensor.patch.full_chunks},
               {"old_digest", digest_text(tensor.patch.old_digest)},
               {"new_digest", digest_text(tensor.patch.new_digest)}});
  return json;
}

std::uint64_t new_bytes_of(const PatchFileInfo& info) {
  std::uint64_t bytes = 0;
  for (const PatchFileTensor& tensor : info.tensors) bytes += tensor.new_bytes;
  return bytes;
}

void print_patch_json(const std::string& path, const PatchFileInfo& info) {
  PatchOutput tensors = PatchOutput::array();
  for (const PatchFileTensor& tensor : info.tensors) tensors.push_back(tensor_json(tensor));
  const PatchOutput json = {
      {"file", path},
      {"bytes", info.file_bytes},
      {"new_bytes", new_bytes_of(info)},
      {"from", info.from},
      {"to", info.to},
      {"old_digest", digest_text(info.old_digest)},
      {"new_digest", digest_text(info.new_digest)},
      {"file_digest", info.file_digest ? PatchOutput(digest_text(*info.file_digest)) : PatchOutput(nullptr)},
      {"has_header", info.has_header},
      {"leaves_out_unchanged", info.leaves_out_unchanged},
      {"tensors", std::move(tensors)}};
  std::cout << json.dump(2, ' ', false, PatchOutput::error_handler_t::replace) << "\n";
}

std::string times_text(std::uint64_t new_bytes, std::uint64_t bytes) {
  return bytes == 0 ? "-" : rounded(static_cast<double>(new_bytes) / static_cast<double>(bytes));
}

void print_patch_row(const std::string& name, std::size_t width, const std::string& weights,
                     const std::string& changes, std::uint64_t bytes, std::uint64_t new_bytes) {
  char line[160];
  std::snprintf(line, sizeof line, " %17s %17s %15s %10s\n", weights.c_str(), changes.c_str(),
                grouped(bytes).c_str(), times_text(new_bytes, bytes).c_str());
  std::cout << name << std::string(width - std::min(width, name.size()), ' ') << line;
}

void print_patch_table(const std::string& path, const PatchFileInfo& info) {
  std::cout << printable_line(path) << ": " << grouped(info.file_bytes) << " bytes, "
            << (info.leaves_out_unchanged
                    ? std::string("without the tensors that don't change")
                    : size_text(new_bytes_of(info), info.file_bytes) + " than the new weights")
            << "\n"
            << "  from  " << digest_text(info.old_digest) << "  " << printable_line(info.from) << "\n"
            << "  to    " << digest_text(info.new_digest) << "  " << printable_line(info.to) << "\n"
            << "  file  " << (info.file_digest ? digest_text(*info.file_digest) : "no digest") << "\n\n";
  std::size_t width = 6;
  for (const PatchFileTensor& tensor : info.tensors) {
    width = std::max(width, printable_line(tensor.name).size());
  }
  std::cout << "tensor" << std::string(width - 6, ' ')
            << "           weights           changes           bytes  x smaller\n";
  std::uint64_t weights = 0;
  std::uint64_t changes = 0;
  std::uint64_t bytes = 0;
  bool at_least = false;
  for (const PatchFileTensor& tensor : info.tensors) {
    bytes += tensor.bytes;
    const std::string name = printable_line(tensor.name);
    if (tensor.full) {
      print_patch_row(name, width, "", "in full", tensor.bytes, tensor.new_bytes);
      continue;
    }
    weights += tensor.patch.elements;
    changes += tensor.patch.changes;
    // Changes of chunks that are there in full are not counted: then the number is a least one.
    const bool is_least = tensor.patch.full_chunks > 0;
    at_least = at_least || is_least;
    print_patch_row(name, width, grouped(tensor.patch.elements),
                    (is_least ? "over " : "") + grouped(tensor.patch.changes), tensor.bytes,
                    tensor.new_bytes);
  }
  print_patch_row("all", width, grouped(weights), (at_least ? "over " : "") + grouped(changes), bytes,
                  new_bytes_of(info));
}

void inspect_patch(const std::string& path, bool json) {
  check_paths({path});
  const auto info = value_or_failed(inspect_patch_file(path));
  if (json) {
    print_patch_json(path, info);
  } else {
    print_patch_table(path, info);
  }
}

using Paths = std::shared_ptr<PatchPaths>;

void add_names(CLI::App& command, const Paths& paths) {
  add_value(command, "--from TEXT", paths->from_name, "A name for the old version, kept in the patch");
  add_value(command, "--to TEXT", paths->to_name, "A name for the new version, kept in the patch");
}

void add_patch(CLI::App& command, const Paths& paths, const char* about) {
  command.add_option("PATCH", paths->patch, about)->required();
}

void add_make(CLI::App& patch) {
  CLI::App* command = patch.add_subcommand("make", "Write the patch from one model to another");
  const Paths paths = std::make_shared<PatchPaths>();
  command->add_option("OLD", paths->from, "The model that the receivers have")->required();
  command->add_option("NEW", paths->to, "The model that they are to have")->required();
  add_patch(*command, paths, "The file to write");
  add_names(*command, paths);
  command->add_flag("--force", paths->force, "Replace PATCH if it exists");
  command->footer(
      "Both models are safetensors files. Tensors may be added, removed and reshaped; those that both\n"
      "have with one dtype and shape are patched, others are kept in full. Models in several files (shards)\n"
      "take a patch for each.\n"
      "\n"
      "Examples:\n"
      "  deltawire patch make v1.safetensors v2.safetensors v1-v2.safetensors\n"
      "  deltawire patch make v1.safetensors v2.safetensors p.safetensors --from v1 --to v2\n");
  command->callback([paths] { make(*paths); });
}

void add_apply(CLI::App& patch) {
  CLI::App* command = patch.add_subcommand("apply", "Write the new model, from the old one and a patch");
  const Paths paths = std::make_shared<PatchPaths>();
  command->add_option("OLD", paths->from, "The model that the patch was made from")->required();
  add_patch(*command, paths, "A file of 'deltawire patch make'");
  command->add_option("NEW", paths->to, "The file to write")->required();
  command->add_flag("--force", paths->force, "Replace NEW if it exists");
  command->footer(
      "NEW gets the bytes of the file that the patch was made for, or is not written at all: the old\n"
      "model, every checksum and the new file are checked before it takes its name. A patch of deltawire\n"
      "0.1 or of a store has no digest of the new file's header (its metadata, and the order of its\n"
      "tensors): that is not checked then, and the last line says so.\n"
      "\n"
      "Example:\n"
      "  deltawire patch apply v1.safetensors v1-v2.safetensors v2.safetensors\n");
  command->callback([paths] { apply(*paths); });
}

void add_verify(CLI::App& patch) {
  CLI::App* command = patch.add_subcommand("verify", "Check a patch against the old model; write nothing");
  const Paths paths = std::make_shared<PatchPaths>();
  command->add_option("OLD", paths->from, "The model that the patch was made from")->required();
  add_patch(*command, paths, "A file of 'deltawire patch make'");
  command->footer(
      "Makes all checks of 'deltawire patch apply', the new file's digest included. Exit status 0: the\n"
      "patch can be applied.\n"
      "\n"
      "Example:\n"
      "  deltawire patch verify v1.safetensors v1-v2.safetensors && echo sound\n");
  command->callback([paths] { verify(*paths); });
}

void add_inspect(CLI::App& patch) {
  CLI::App* command = patch.add_subcommand("inspect", "Show the tensors of a patch, their changes and bytes");
  const auto path = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("PATCH", *path, "A file of 'deltawire patch make'")->required();
  command->add_flag("--json", *json, "Print JSON for programs");
  command->footer(
      "Needs no model, and verifies every checksum.\n"
      "\n"
      "Examples:\n"
      "  deltawire patch inspect v1-v2.safetensors\n"
      "  deltawire patch inspect v1-v2.safetensors --json | jq '.tensors[] | {name, changes}'\n");
  command->callback([path, json] { inspect_patch(*path, *json); });
}

void add_merge(CLI::App& patch) {
  CLI::App* command = patch.add_subcommand("merge", "Write one patch that does what several do in turn");
  const Paths paths = std::make_shared<PatchPaths>();
  command->add_option("OLD", paths->from, "The model that the first patch was made from")->required();
  command->add_option("PATCHES", paths->merged, "Patches, each from what the one before makes")->required();
  add_value(*command, "-o,--output MERGED", paths->patch, "The file to write")->required();
  add_names(*command, paths);
  command->add_flag("--force", paths->force, "Replace MERGED if it exists");
  command->footer(
      "The merged patch is the one that 'deltawire patch make' would write between the first and the last\n"
      "model, and smaller than the patches together. The models between are not written anywhere.\n"
      "\n"
      "Example:\n"
      "  deltawire patch merge v1.safetensors v1-v2.safetensors v2-v3.safetensors -o v1-v3.safetensors\n");
  command->callback([paths] { merge(*paths); });
}

}  // namespace

void add_patch_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("patch", "Make, apply and inspect patches between models");
  command->require_subcommand(1);
  command->footer(
      "A patch is what changed between two versions of a model in safetensors files, without loss. A step\n"
      "of fine-tuning changes few 16-bit weights, and a patch takes 5 to 9 bits for each of them. Patches "
      "are\n"
      "safetensors files too. Memory does not grow with the model.\n"
      "\n"
      "Examples:\n"
      "  deltawire patch make v1.safetensors v2.safetensors v1-v2.safetensors\n"
      "  deltawire patch apply v1.safetensors v1-v2.safetensors v2.safetensors\n"
      "Run 'deltawire patch make --help' and so on for more.\n");
  add_make(*command);
  add_apply(*command);
  add_verify(*command);
  add_inspect(*command);
  add_merge(*command);
}

}  // namespace deltawire::cli
