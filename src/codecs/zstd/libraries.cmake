# Debian: libzstd-dev. Its own package for CMake isn't everywhere: cmake/Findzstd.cmake.
find_package(zstd REQUIRED GLOBAL)
list(APPEND libraries zstd::libzstd)
