# Fewer and larger compilations, where a build from nothing is to be short; the preset `release` asks for it, and a
# part of another project does it anyway.
#
# The libraries, sanitized twins too, are compiled eight files at once (UNITY_BUILD, in layers.cmake): a third of the time
# from nothing, more after an edit. Tests are compiled file by file, so that each is seen to include what it needs, or
# nearly: the headers of the standard library and of GoogleTest are precompiled once, as reading them takes a second of the
# two or three that a file takes. The other presets see to it that files include what they use.
# A compiler cache is quicker still, and can't see into precompiled headers: with one (CMAKE_CXX_COMPILER_LAUNCHER) they
# stay out.
set(short_build_default OFF)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(short_build_default ON)
endif()
option(DELTAWIRE_SHORT_BUILD "Compile many files at once, and read headers once for many" ${short_build_default})
set(standard_headers <algorithm> <array> <atomic> <bit> <chrono> <cmath> <condition_variable> <cstdint> <cstring>
                     <deque> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <span> <string>
                     <thread> <utility> <vector> <tl/expected.hpp>)

# deltawire_precompile(TARGET): a test's objects read the precompiled headers.
function(deltawire_precompile target)
  if(NOT DELTAWIRE_SHORT_BUILD OR CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  target_link_libraries(${target} PRIVATE GTest::gtest)  # its definitions are part of the flags
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Precompiled, g++ 12 forgets which warnings the library's headers have switched off; other builds have these.
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  if(NOT TARGET deltawire_tests_headers)
    deltawire_precompiled_headers(deltawire_tests_headers)
  endif()
  target_precompile_headers(${target} REUSE_FROM deltawire_tests_headers)
endfunction()

function(deltawire_precompiled_headers headers)
  set(empty ${PROJECT_BINARY_DIR}/precompiled/tests.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${headers} OBJECT ${empty})
  target_link_libraries(${headers} PRIVATE tl::expected Threads::Threads GTest::gtest)
  target_precompile_headers(${headers} PRIVATE ${standard_headers} <gtest/gtest.h>)
  target_compile_options(${headers} PRIVATE ${test_options})
endfunction()
