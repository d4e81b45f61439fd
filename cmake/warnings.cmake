# Flags that every target of the project gets. Codec arithmetic must not depend on the compiler's mood,
# so contraction to FMA is off everywhere and fast-math is never on (docs/determinism.md).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror
                    -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlapping copies inside std::string's operator+ (GCC bug 105651).
  add_compile_options(-Wno-restrict)
endif()
if(DELTAWIRE_SANITIZE)
  add_compile_options(-fsanitize=${DELTAWIRE_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DELTAWIRE_SANITIZE})
endif()

# deltawire_layer(name [SOURCES ...] [TESTS ...] [DEPENDS layer ...] [LIBRARIES target ...])
# One folder of src/ = one static library; the DEPENDS are the arrows of docs/architecture.md.
# Unit tests that sit beside the code become one test program, deltawire_<name>_test.
function(deltawire_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPENDS;LIBRARIES" ${ARGN})
  add_library(deltawire_${name} STATIC ${ARG_SOURCES})
  add_library(deltawire::${name} ALIAS deltawire_${name})
  target_include_directories(deltawire_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
                                                      ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(deltawire_${name} PUBLIC tl::expected Threads::Threads ${ARG_LIBRARIES})
  foreach(layer IN LISTS ARG_DEPENDS)
    target_link_libraries(deltawire_${name} PUBLIC deltawire::${layer})
  endforeach()
  if(DELTAWIRE_TESTS AND ARG_TESTS)
    find_package(GTest REQUIRED)
    find_package(rapidcheck REQUIRED)
    add_executable(deltawire_${name}_test ${ARG_TESTS})
    target_link_libraries(deltawire_${name}_test PRIVATE deltawire::${name} GTest::gtest_main
                                                         rapidcheck)
    include(GoogleTest)
    gtest_discover_tests(deltawire_${name}_test TEST_PREFIX "${name}." PROPERTIES TIMEOUT 120
                                                DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
