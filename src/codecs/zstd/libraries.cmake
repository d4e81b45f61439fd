# Its own package for CMake isn't everywhere: cmake/Findzstd.cmake.
deltawire_require(zstd "zstd" libzstd-dev)
list(APPEND libraries zstd::libzstd)
