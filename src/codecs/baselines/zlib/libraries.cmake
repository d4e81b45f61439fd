deltawire_require(ZLIB "zlib" zlib1g-dev)
list(APPEND libraries ZLIB::ZLIB)
