// Files of models: a safetensors file that is open for reading, and places for new files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/disk_file.h"
#include "deltawire/result.h"
#include "model/model.h"

namespace deltawire::model {

class ModelFile final : public Model {
 public:
  // Reads the header; the file must have exactly the bytes that it claims. Throws std::bad_alloc. Errors,
  // with the path: kIo, kTruncated, and those of read_model_header().
  static Result<std::unique_ptr<ModelFile>> open(const std::string& path);

  const std::string& name() const noexcept override { return path_; }
  const ModelHeader& header() const noexcept override { return header_; }
  const std::string& header_json() const noexcept override { return json_; }
  Result<std::unique_ptr<TensorReader>> open(const ModelTensor& tensor) override;

  int descriptor() const noexcept { return file_.get(); }
  std::uint64_t place_of(const ModelTensor& tensor) const noexcept {
    return kModelLengthBytes + json_.size() + tensor.begin;
  }
  std::uint64_t file_bytes() const noexcept { return kModelLengthBytes + json_.size() + header_.data_bytes; }

  // The first bytes of the tensor, or all of it. Errors: kIo, kTruncated.
  Status read(const ModelTensor& tensor, std::uint64_t offset, MutBytes out) const;

 private:
  ModelFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  Status read_front(std::uint64_t file_bytes);

  std::string path_;
  Descriptor file_;
  std::string json_;
  ModelHeader header_;
};

// Begins a file that is to replace `path`. Errors: kIo if its place is taken (unless `replace`) or can't be
// had; kInvalidArgument if it is one of the `inputs`, under whatever name or link.
Result<NewFile> begin_file(const std::string& path, bool replace, std::span<const std::string> inputs);

// Flushes the file to the disk and puts it in its place, unless that has been taken meanwhile. Errors: kIo.
Status end_file(NewFile& file, const std::string& path, bool replace);

}  // namespace deltawire::model
