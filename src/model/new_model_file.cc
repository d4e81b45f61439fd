#include "model/new_model_file.h"

#include <filesystem>
#include <system_error>

#include <sys/stat.h>

#include "model/model_file.h"

namespace deltawire::model {

namespace {

tl::unexpected<Error> taken(const std::string& path) {
  return error_in(path, {ErrorCode::kIo, "exists already; give another name, or have it replaced"});
}

}  // namespace

Result<NewFile> begin_file(const std::string& path, bool replace, std::span<const std::string> inputs) {
  struct stat place{};
  if (stat(path.c_str(), &place) != 0) return NewFile::create(path);  // free, or creating it will tell
  if (S_ISDIR(place.st_mode)) return error_in(path, {ErrorCode::kIo, "is a folder; name a file in it"});
  if (!S_ISREG(place.st_mode)) return error_in(path, {ErrorCode::kIo, "is not a regular file; name one"});
  for (const std::string& input : inputs) {
    struct stat read{};
    if (stat(input.c_str(), &read) == 0 && read.st_dev == place.st_dev && read.st_ino == place.st_ino) {
      return error_in(path,
                      {ErrorCode::kInvalidArgument, "is the input itself; give the output another name"});
    }
  }
  if (!replace) return taken(path);
  // Through a symbolic link, what it points to is replaced, not the link.
  std::error_code not_there;
  const std::filesystem::path resolved = std::filesystem::canonical(path, not_there);
  return NewFile::create(not_there ? path : resolved.string());
}

Status end_file(NewFile& file, const std::string& path, bool replace) {
  if (const Status flushed = file.flush(); !flushed) return flushed;
  struct stat place{};
  if (!replace && lstat(path.c_str(), &place) == 0) return taken(path);
  return file.put_in_place();
}

}  // namespace deltawire::model
