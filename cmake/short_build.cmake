# Fewer and larger compilations, where a build from nothing is to be short; the preset `release` asks for it.
#
# What users get is compiled eight files at once (UNITY_BUILD, in layers.cmake): a third of the time from nothing, more
# after an edit. Tests, and the sanitized twins, are compiled file by file, so that each is seen to include what it needs, or
# nearly: the standard library's headers, and GoogleTest's for tests, are precompiled once for each set of flags, as reading
# them takes a second of the two or three that a file takes. The other presets see to it that files include what they use.
# A compiler cache is quicker still, and can't see into precompiled headers: with one (CMAKE_CXX_COMPILER_LAUNCHER) they
# stay out.
option(DELTAWIRE_SHORT_BUILD "Compile many files at once, and read headers once for many" OFF)
set(standard_headers <algorithm> <array> <atomic> <bit> <chrono> <cmath> <condition_variable> <cstdint> <cstring>
                     <deque> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <span> <string>
                     <thread> <utility> <vector> <tl/expected.hpp>)

# deltawire_precompile(TARGET sanitized|tests OPTIONS): the target reads the precompiled headers of its kind.
# One with OPTIONS of its own can't: they hold for one set of flags.
function(deltawire_precompile target kind options)
  if(NOT DELTAWIRE_SHORT_BUILD OR CMAKE_CXX_COMPILER_LAUNCHER OR options)
    return()
  endif()
  if(kind STREQUAL "tests")
    target_link_libraries(${target} PRIVATE GTest::gtest)  # its definitions are part of the flags
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Precompiled, g++ 12 forgets which warnings the library's headers have switched off; other builds have these.
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  set(headers deltawire_${kind}_headers)
  if(NOT TARGET ${headers})
    deltawire_precompiled_headers(${headers} ${kind})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

function(deltawire_precompiled_headers headers kind)
  set(empty ${PROJECT_BINARY_DIR}/precompiled/${kind}.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${headers} OBJECT ${empty})
  target_link_libraries(${headers} PRIVATE tl::expected Threads::Threads)
  target_precompile_headers(${headers} PRIVATE ${standard_headers})
  if(kind STREQUAL "sanitized")
    target_compile_options(${headers} PRIVATE ${twin_options})
  elseif(kind STREQUAL "tests")
    target_compile_options(${headers} PRIVATE ${test_options})
    target_link_libraries(${headers} PRIVATE GTest::gtest)
    target_precompile_headers(${headers} PRIVATE <gtest/gtest.h>)
  endif()
endfunction()
