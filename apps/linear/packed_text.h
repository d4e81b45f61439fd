// The text of a packed file, or of a stream whose first bytes say whether it is packed.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "base/disk_file.h"
#include "deltawire/result.h"
#include "linear/text_source.h"

namespace deltawire::linear {

// The first bytes of gzip, xz, bzip2 and zstd.
inline constexpr std::string_view kGzipMagic = "\x1F\x8B";
inline constexpr std::array<std::string_view, 4> kPackedMagics{kGzipMagic,
                                                               std::string_view("\xFD"
                                                                                "7zXZ\0",
                                                                                6),
                                                               "BZh", "\x28\xB5\x2F\xFD"};

// Text packed by gzip, xz, bzip2 or zstd, and plain text as it is. Checksums and lengths that the packing has
// are verified, concatenated members (streams, frames) are read one after another, and bytes that belong to
// none of them are an error. Errors, also of read(): kIo, without the file's name.
//
// gzip is unpacked by zlib: libarchive reads past a member's CRC-32 and length without comparing them.
Result<std::unique_ptr<TextSource>> open_packed(Descriptor file);

}  // namespace deltawire::linear
