// Writes patch files entry by entry. Their header comes first and is known last: room for the longest one is
// left free, and spaces fill what remains of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/disk_file.h"
#include "model/model.h"

namespace deltawire::model {

struct TensorDigests {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

class PatchFileWriter {
 public:
  // `planned` are the entries that will be added, in order, with as many bytes as they may get; `metadata` is
  // as long as it will be.
  PatchFileWriter(NewFile file, std::string path, std::vector<ModelTensor> planned,
                  const std::map<std::string, std::string>& metadata);

  // kLimit, with the path, if the file would have a longer header or more entries than readers take.
  Status check_limits() const;

  // The patch from a tensor to another of its kind. Throws std::bad_alloc. Errors, with path and tensor:
  // those of reading and writing.
  Result<TensorDigests> add_patch(Model& from, const ModelTensor& old_tensor, Model& to,
                                  const ModelTensor& new_tensor, const Work& work);

  // A tensor as it is; returns its digest. The rest is as above.
  Result<std::uint64_t> add_full(Model& model, const ModelTensor& tensor, const Work& work);

  Status add_text(std::string_view text);

  // Takes the last entry back.
  void leave_out_last();
  bool leaves_out() const noexcept { return leaves_out_; }

  // Ends the file, as end_file() does, after all planned entries.
  Status finish(const std::map<std::string, std::string>& metadata, bool replace);

 private:
  std::uint64_t place() const noexcept { return kModelLengthBytes + header_room_ + data_bytes_; }
  void close_entry(std::uint64_t bytes);
  Status move_data(std::uint64_t header_room);
  // What writing an entry gives, which does not know the file's name.
  template <class T>
  Result<T> in_entry(Result<T> result) const {
    return in_file(std::move(result), path_, entries_.at(added_));
  }

  NewFile file_;
  std::string path_;
  std::vector<ModelTensor> entries_;
  std::size_t added_ = 0;
  bool leaves_out_ = false;
  std::uint64_t header_room_ = 0;
  std::uint64_t data_bytes_ = 0;
};

}  // namespace deltawire::model
