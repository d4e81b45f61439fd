# Flags that every target of the project gets. Codec arithmetic must not depend on the compiler's mood,
# so contraction to FMA is off everywhere and fast-math is never on (docs/design/determinism.md).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# After the flags of a project that this is a part of, and stronger.
add_compile_options(-fno-fast-math -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # In the shared library nobody replaces a function of ours by his own: calls within a file may be inlined.
  add_compile_options(-fno-semantic-interposition)
endif()
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# That warnings are errors is for us: the presets say so (CMAKE_COMPILE_WARNING_AS_ERROR). A user's newer compiler may
# warn of what ours doesn't.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlapping copies inside std::string's operator+ (GCC bug 105651).
  add_compile_options(-Wno-restrict)
endif()
if(DELTAWIRE_SANITIZE)
  add_compile_options(-fsanitize=${DELTAWIRE_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DELTAWIRE_SANITIZE})
endif()
