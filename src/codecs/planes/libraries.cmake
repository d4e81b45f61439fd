# zstd's own package for CMake isn't everywhere: cmake/Findzstd.cmake.
deltawire_require(zstd "zstd" libzstd-dev)
deltawire_require(ZLIB "zlib" zlib1g-dev)
list(APPEND libraries zstd::libzstd ZLIB::ZLIB)
