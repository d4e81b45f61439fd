# Debian: libzstd-dev. Its own package for CMake isn't everywhere.
find_path(ZSTD_FOLDER zstd.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
add_library(deltawire_zstd INTERFACE)
target_include_directories(deltawire_zstd SYSTEM INTERFACE ${ZSTD_FOLDER})
target_link_libraries(deltawire_zstd INTERFACE ${ZSTD_LIBRARY})
list(APPEND libraries deltawire_zstd)
