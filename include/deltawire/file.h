// .dw files: one encoded tensor, with its spec, dtype and shape as text (docs/reference/format.md, "Files").
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/policy.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Longer tensors are cut into parts of at most this many elements. A part, its message and its decoded values
// stay in a core's own caches, or nearly: with parts of 15 million elements a file takes twice the time.
inline constexpr std::uint64_t kFilePartElements = 1'048'576;

struct DELTAWIRE_API FileHeader {
  std::string codec_spec;  // canonical
  Policy policy;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  // row-major; the product is the element count; at most 8 dimensions
  std::uint64_t part_elements = 0;   // in every part but the last; 0: the tensor is one part
  std::uint64_t header_bytes = 0;    // where the frames begin
  std::uint64_t count() const noexcept;
};

// The whole file for `tensor`, cut into parts of kFilePartElements. Errors: those of make_codec and
// Codec::encode; kInvalidArgument if the shape does not match the count, or the tensor has keys: files hold
// dense tensors only. A codec that draws random numbers draws the same ones for every file.
DELTAWIRE_API Result<std::vector<std::byte>> encode_file(const TensorView& tensor,
                                                         std::span<const std::uint64_t> shape,
                                                         std::string_view codec_spec,
                                                         const Policy& policy = {});

// Reads only the header, from any bytes. Errors: kTruncated, kCorrupt, kUnsupportedVersion, kLimit.
DELTAWIRE_API Result<FileHeader> read_file_header(Bytes file);

// Decodes the file into `out`, whose count and dtype must be the header's. Same errors, and those of
// Channel::decode.
DELTAWIRE_API Status decode_file(Bytes file, const TensorSlot& out);

// Encodes a file part by part, so that a tensor of any size takes the memory of one part. The bytes are the
// same as encode_file's.
// Thread rule: one thread at a time.
class DELTAWIRE_API FileEncoder {
 public:
  // header.codec_spec need not be canonical; header.part_elements 0 stands for kFilePartElements;
  // header_bytes is not read. Errors: those of encode_file, except those about values.
  static Result<FileEncoder> make(FileHeader header);
  FileEncoder(FileEncoder&&) noexcept;
  FileEncoder& operator=(FileEncoder&&) noexcept;
  ~FileEncoder();

  Bytes header() const noexcept;  // the first bytes of the file

  // The most bytes that the file has, header included.
  std::uint64_t bound() const;

  // Elements of the part that encode takes next; 0: the file is complete.
  std::uint64_t due() const noexcept;

  // The next bytes of the file, in pieces that are valid until the next call. Errors: kInvalidArgument if
  // count or dtype is not what is due; those of Codec::encode, after which nothing more can be encoded
  // (kState).
  Result<std::span<const Bytes>> encode(const TensorView& part);

  // The whole file, of the whole tensor, into memory of bound() bytes or more; returns its length. Where the
  // codec has separate chunks no other memory grows with the tensor. REQUIRES: nothing was encoded before.
  // Errors: those of encode_file, after which `out` is unspecified.
  Result<std::uint64_t> encode_all(const TensorView& tensor, MutBytes out);

 private:
  struct State;
  explicit FileEncoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Fills the span with the next bytes; if it gives fewer, the file has ended. Callers pass its error on.
using ReadBytes = std::function<Result<std::size_t>(MutBytes)>;

// Reads the bytes of the next frame, or those of it that there are, into `frame`; empty at the end of the
// file. FrameReader::open says whether they are a whole frame. Memory grows with the bytes that have been
// read, not with a claimed size.
DELTAWIRE_API Status read_frame(const ReadBytes& read, std::vector<std::byte>& frame);

// Reads only the header, from the front of a file; errors as for bytes in memory.
DELTAWIRE_API Result<FileHeader> read_file_header(const ReadBytes& read);

// Decodes a file part by part, in the memory of one part's message.
// Thread rule: one thread at a time.
class DELTAWIRE_API FileReader {
 public:
  static Result<FileReader> open(ReadBytes read);
  static Result<FileReader> open(Bytes file);  // which stay, and are not copied
  FileReader(FileReader&&) noexcept;
  FileReader& operator=(FileReader&&) noexcept;
  ~FileReader();

  const FileHeader& header() const noexcept;
  std::uint64_t due() const noexcept;  // elements of the part that read decodes next; 0: all were read

  // Decodes the next part into `out`, which has due() elements of the header's dtype. Nothing may follow the
  // last part. Errors: those of decode_file, after which nothing more can be read (kState).
  Status read(const TensorSlot& out);

  // The same of a file that is not read but comes part by part: `frames` are the part that is due, as
  // FileEncoder::encode made it. REQUIRES: opened with the header's bytes alone.
  Status read(std::span<const Bytes> frames, const TensorSlot& out);

 private:
  struct State;
  explicit FileReader(std::unique_ptr<State> state);
  static Result<FileReader> open(Result<FileHeader> header, std::unique_ptr<State> state);
  template <class Gather>
  Status decode(const Gather& frames, const TensorSlot& out);
  std::unique_ptr<State> state_;
};

}  // namespace deltawire
