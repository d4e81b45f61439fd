# Flags of every target of the project. Codec arithmetic must not depend on the compiler, so contraction to
# FMA is off everywhere and fast-math is never on (docs/design/determinism.md).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# These come after the flags of a project that this is a part of, and override them.
add_compile_options(-fno-fast-math -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # In the shared library nobody replaces a function of ours by his own: calls within a file may be inlined.
  add_compile_options(-fno-semantic-interposition)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    # It would clear small structs, every Status that says nothing among them, by `rep stos`, which takes 10 ns to begin.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-mmemset-strategy=vector_loop:512:noalign,libcall:-1:noalign>)
  endif()
endif()
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Warnings are errors only in the presets (CMAKE_COMPILE_WARNING_AS_ERROR): a user's newer compiler may warn where ours
# doesn't.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wthread-safety)  # src/base/mutex.h
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlapping copies inside std::string's operator+ (GCC bug 105651).
  add_compile_options(-Wno-restrict)
endif()
if(DELTAWIRE_SANITIZE)
  add_compile_options(-fsanitize=${DELTAWIRE_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DELTAWIRE_SANITIZE})
endif()
