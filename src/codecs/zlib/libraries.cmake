# Debian: zlib1g-dev.
find_package(ZLIB REQUIRED GLOBAL)
list(APPEND libraries ZLIB::ZLIB)
