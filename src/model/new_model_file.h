// Places for new files.
#pragma once

#include <span>
#include <string>

#include "base/disk_file.h"
#include "deltawire/result.h"

namespace deltawire::model {

// Begins a file that is to replace `path`. Errors: kIo if its place is taken (unless `replace`) or can't be
// had; kInvalidArgument if it is one of the `inputs`, under whatever name or link.
Result<NewFile> begin_file(const std::string& path, bool replace, std::span<const std::string> inputs);

// Flushes the file to the disk and puts it in its place, unless that has been taken meanwhile. Errors: kIo.
Status end_file(NewFile& file, const std::string& path, bool replace);

}  // namespace deltawire::model
