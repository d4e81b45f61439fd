# Fewer and larger compilations, to make a build from nothing short. The preset `release` turns it on; as a part of another
# project it is always on.
#
# The libraries, sanitized twins too, and the tests are compiled 32 files at once (UNITY_BUILD, in layers.cmake): a
# build from nothing takes less than two thirds of the time, a build after an edit takes longer. All layers but kernels,
# which have flags of their own, also use precompiled headers of the standard library, tests of GoogleTest too. The other
# presets check that files include what they use. A compiler cache is faster still, but can't be combined with precompiled
# headers: with one (CMAKE_CXX_COMPILER_LAUNCHER) they are off.
set(short_build_default OFF)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(short_build_default ON)
endif()
option(DELTAWIRE_SHORT_BUILD "Compile many files at once, and read headers once for many" ${short_build_default})
if(DELTAWIRE_SHORT_BUILD)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 32)
  # g++ looks for its own garbage once it holds 2 GB, not 128 MB: a tenth of the time.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=1000;--param=ggc-min-heapsize=2000000>")
endif()
set(standard_headers <algorithm> <array> <atomic> <bit> <chrono> <cmath> <condition_variable> <cstdint> <cstring>
                     <deque> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <span> <string>
                     <thread> <utility> <vector> <tl/expected.hpp>)

# deltawire_precompile(TARGET libraries|tests|twins): the target's objects use headers precompiled with the options of its
# kind; not as a part of another project, whose flags and generator we don't know.
function(deltawire_precompile target kind)
  if(NOT DELTAWIRE_SHORT_BUILD OR NOT PROJECT_IS_TOP_LEVEL OR CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Precompiled, g++ 12 forgets which warnings the library's headers have switched off; other builds have these.
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  set(libraries tl::expected Threads::Threads)
  set(precompiled ${standard_headers})
  set(options)
  if(kind STREQUAL "tests")
    list(APPEND libraries GTest::gtest)
    list(APPEND precompiled ${PROJECT_SOURCE_DIR}/src/base/short_build_testing.h)
    set(options ${test_options})
    target_link_libraries(${target} PRIVATE GTest::gtest)  # its definitions are part of the flags
  endif()
  if(kind STREQUAL "twins")
    set(options ${twin_options})
    target_compile_options(${target} PRIVATE -w)  # the same code as the libraries', which warn
  endif()
  set(headers deltawire_${kind}_headers)
  if(NOT TARGET ${headers})
    set(empty ${PROJECT_BINARY_DIR}/precompiled/${kind}.cc)
    file(CONFIGURE OUTPUT ${empty} CONTENT "")
    add_library(${headers} OBJECT ${empty})
    target_link_libraries(${headers} PRIVATE ${libraries})
    target_compile_options(${headers} PRIVATE ${options})
    target_precompile_headers(${headers} PRIVATE ${precompiled})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()
