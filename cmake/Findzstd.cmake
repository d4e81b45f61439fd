# Finds zstd where it comes without a package for CMake, as in Debian 12: the target zstd::libzstd, which zstd's own
# package has too. Installed beside deltawire-config.cmake, for programs that link the static library.
if(NOT TARGET zstd::libzstd)
  find_path(ZSTD_INCLUDE_DIR zstd.h)
  find_library(ZSTD_LIBRARY zstd)
  mark_as_advanced(ZSTD_INCLUDE_DIR ZSTD_LIBRARY)
endif()
include(FindPackageHandleStandardArgs)
if(TARGET zstd::libzstd)
  set(zstd_FOUND TRUE)
else()
  find_package_handle_standard_args(zstd REQUIRED_VARS ZSTD_LIBRARY ZSTD_INCLUDE_DIR)
endif()
if(zstd_FOUND AND NOT TARGET zstd::libzstd)
  add_library(zstd::libzstd UNKNOWN IMPORTED)
  set_target_properties(zstd::libzstd PROPERTIES IMPORTED_LOCATION "${ZSTD_LIBRARY}"
                                                 INTERFACE_INCLUDE_DIRECTORIES "${ZSTD_INCLUDE_DIR}")
endif()
