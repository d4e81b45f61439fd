// Writes patch files entry by entry. Their header comes first and is known last: room for the longest one is
// left free, and spaces fill what remains of it.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/disk_file.h"
#include "base/errors.h"
#include "base/little_endian.h"
#include "model/model.h"
#include "patch/patch_stream.h"

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
                  const std::map<std::string, std::string>& metadata)
      : file_(std::move(file)), path_(std::move(path)), entries_(std::move(planned)) {
    std::uint64_t end = 0;
    for (ModelTensor& entry : entries_) {
      entry.begin = end;
      end += entry.bytes;
    }
    // Numbers only get shorter than planned.
    header_room_ = aligned(header_of(entries_, metadata).size());
  }

  // kLimit, with the path, if the file would have a longer header or more entries than readers take.
  Status check_limits() const {
    if (header_room_ > kMostModelHeaderBytes) {
      return error_in(path_,
                      {ErrorCode::kLimit, "the patch would have a header of " + std::to_string(header_room_) +
                                              " bytes, and at most " + std::to_string(kMostModelHeaderBytes) +
                                              " are possible: give the tensors shorter names, or "
                                              "divide the model among several files"});
    }
    if (entries_.size() > kMostModelTensors) {
      return error_in(path_,
                      {ErrorCode::kLimit, "the patch would have " + std::to_string(entries_.size()) +
                                              " entries, and at most " + std::to_string(kMostModelTensors) +
                                              " are possible: divide the model among several files"});
    }
    return {};
  }

  // The patch from a tensor to another of its kind. Throws std::bad_alloc. Errors, with path and tensor:
  // those of reading and writing.
  Result<TensorDigests> add_patch(Model& from, const ModelTensor& old_tensor, Model& to,
                                  const ModelTensor& new_tensor, const Work& work) {
    ASSIGN_OR_RETURN(auto writer, in_entry(patch::PatchWriter::begin(file_.descriptor(), place(),
                                                                     new_tensor.bytes, new_tensor.type)));
    ASSIGN_OR_RETURN(const auto old_reader, from.open(old_tensor));
    std::vector<std::byte> before;
    const auto add = [&](Bytes piece) -> Status {
      before.resize(piece.size());
      RETURN_IF_ERROR(old_reader->next(before));
      return in_entry(writer.add(before, piece, work.means));
    };
    RETURN_IF_ERROR(read_tensor(to, new_tensor, work, add));
    RETURN_IF_ERROR(old_reader->finish());
    ASSIGN_OR_RETURN(const auto bytes, in_entry(writer.finish()));
    close_entry(bytes);
    return TensorDigests{writer.head().old_root, writer.head().new_root};
  }

  // A tensor as it is; returns its digest. The rest is as above.
  Result<std::uint64_t> add_full(Model& model, const ModelTensor& tensor, const Work& work) {
    std::uint64_t at = place();
    const auto copied = read_tensor(model, tensor, work, [&](Bytes piece) {
      return in_entry(write_at(file_.descriptor(), piece, std::exchange(at, at + piece.size())));
    });
    if (copied) close_entry(tensor.bytes);
    return copied;
  }

  Status add_text(std::string_view text) {
    RETURN_IF_ERROR(in_entry(write_at(file_.descriptor(), std::as_bytes(std::span(text)), place())));
    close_entry(text.size());
    return {};
  }

  // Takes the last entry back.
  void leave_out_last() {
    assert(added_ > 0 && data_bytes_ >= entries_[added_ - 1].bytes);
    ModelTensor& entry = entries_[added_ - 1];
    data_bytes_ -= entry.bytes;
    entry.name.clear();
    leaves_out_ = true;
  }

  bool leaves_out() const noexcept { return leaves_out_; }

  // Ends the file, as end_file() does, after all planned entries.
  Status finish(const std::map<std::string, std::string>& metadata, bool replace) {
    assert(added_ == entries_.size());
    if (leaves_out_) {
      std::erase_if(entries_, [](const ModelTensor& entry) { return entry.name.empty(); });
      RETURN_IF_ERROR(move_data(aligned(header_of(entries_, metadata).size())));
    }
    std::string front(kModelLengthBytes, '\0');
    store_le(std::as_writable_bytes(std::span(front)).data(), header_room_);
    front += header_of(entries_, metadata);
    assert(front.size() <= kModelLengthBytes + header_room_);
    front.resize(kModelLengthBytes + header_room_, ' ');
    RETURN_IF_ERROR(in_file(write_at(file_.descriptor(), std::as_bytes(std::span(front)), 0), path_));
    // A patch is written behind the room for the longest table, and then moved.
    if (ftruncate(file_.descriptor(), static_cast<off_t>(place())) != 0) {
      return error_in(path_, io_error("cannot be cut to its length").value());
    }
    return end_file(file_, path_, replace);
  }

 private:
  static constexpr std::size_t kMovedAtOnce = std::size_t{1} << 20;

  std::string header_of(const std::vector<ModelTensor>& entries,
                        const std::map<std::string, std::string>& metadata) {
    return write_model_header(entries, ModelMetadata(metadata.begin(), metadata.end()));
  }

  std::uint64_t place() const noexcept { return kModelLengthBytes + header_room_ + data_bytes_; }

  void close_entry(std::uint64_t bytes) {
    assert(added_ < entries_.size() && bytes <= entries_[added_].bytes);
    ModelTensor& entry = entries_[added_++];
    entry.begin = data_bytes_;
    if (bytes != entry.bytes) entry.shape = {bytes};
    entry.bytes = bytes;
    data_bytes_ += bytes;
  }

  // Moves the data forward to where they begin behind a shorter header.
  Status move_data(std::uint64_t header_room) {
    assert(header_room <= header_room_);
    std::vector<std::byte> piece(kMovedAtOnce);
    for (std::uint64_t at = 0; at < data_bytes_; at += piece.size()) {
      piece.resize(std::min<std::uint64_t>(kMovedAtOnce, data_bytes_ - at));
      const std::uint64_t from = kModelLengthBytes + header_room_ + at;
      const std::uint64_t to = kModelLengthBytes + header_room + at;
      RETURN_IF_ERROR(in_file(read_at(file_.descriptor(), piece, from), path_));
      RETURN_IF_ERROR(in_file(write_at(file_.descriptor(), piece, to), path_));
    }
    header_room_ = header_room;
    return {};
  }

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
