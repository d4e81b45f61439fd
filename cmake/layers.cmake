# How the folders of src/ and apps/ become libraries, and tests become programs.
#
# DELTAWIRE_SANITIZED_TWIN compiles the libraries a second time, under sanitizers, and links each test program twice: with
# the libraries that users get, and with the sanitized ones. The tests' own code, which is more than half of all, is
# compiled once, unsanitized, and so are the applications, the planner and the C interface (NO_TWIN), which take long to
# compile and read no compressed bytes themselves. The presets asan-ubsan and tsan sanitize tests and all.
option(DELTAWIRE_SANITIZED_TWIN "Link each test program a second time, with sanitized libraries" OFF)
# Checks that compile slowly and find little here are off, which halves the time: null pointers and objects' sizes
# (AddressSanitizer finds both), objects' types, pointers' alignment and overflow. asan-ubsan and fuzz have them on.
set(twin_options -Og -g1 -UNDEBUG -D_GLIBCXX_ASSERTIONS -fsanitize=address,undefined
                 -fno-sanitize=null,object-size,vptr,alignment,pointer-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer
                 # Functions of more than 300 reads and writes call the checks instead of inlining them: long kernels then
                 # compile in half the time.
                 $<$<CXX_COMPILER_ID:GNU>:--param=asan-instrumentation-with-call-threshold=300>)
# The many tests run for milliseconds each, so they are compiled with options that compile fast. Asserts are on in them, as
# in the twins; the libraries that users get have none.
set(test_options $<$<CONFIG:Release>:-Og> -UNDEBUG)
# Freed memory is reused after 16 MB instead of 256, since fresh pages cost time and memory. For the same reason the stacks
# of thousands of threads are not kept for use-after-return checks; asan-ubsan keeps them.
set(twin_environment ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1:quarantine_size_mb=16:malloc_context_size=8
                     UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1)
# How many of CTest's slots a test takes: run_steps.sh has eight a core, since most tests wait. A folder whose tests
# compute all the time sets more.
set(test_slots 1)
# CTest begins with the highest: the tests that compute most, and then, to fill what they leave, those that wait most. Begun
# last, they would wait alone.
set(test_cost 1)
# Include folders of the layers. Only apps/ adds apps/, so that nothing in src/ can include its headers.
set(include_folders ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# A test program that runs for more seconds counts as hanging. Some hold many cases, and a busy machine takes ten times as
# long.
set(time_limit 1200)

include(${CMAKE_CURRENT_LIST_DIR}/short_build.cmake)

# deltawire_gather(LAYERS PROPERTY RESULT): what the layers and all below them have as PROPERTY.
function(deltawire_gather layers property result)
  set(all)
  foreach(layer IN LISTS layers)
    get_property(of_layer GLOBAL PROPERTY deltawire_${property}_${layer})
    list(APPEND all ${of_layer})
  endforeach()
  list(REMOVE_DUPLICATES all)
  set(${result} ${all} PARENT_SCOPE)
endfunction()

# deltawire_layer(NAME [OBJECTS] [UNITY_GROUPS] [BUT regex | SOURCES file... [TESTS file...]] [DEPENDS layer...]
#                 [LIBRARIES target...] [OPTIONS flag...] [SHARDS n] [RELEASED_ONLY case...] [RELEASED_TOO case...]
#                 [CHECK_ONLY case...] [UNSANITIZED | NO_TWIN])
# Makes a static library, or objects alone if only the libraries of libraries.cmake use them; with OBJECTS these
# become part of each library that depends on the layer. Without SOURCES it is made of the .cc files in its folder and
# below that BUT does not match, x_test.cc and x_testing.cc being its tests, and fuzz_x.cc neither; CMake looks again at
# each build. UNITY_GROUPS: the sources' UNITY_GROUP says which are compiled together. The DEPENDS are the arrows of
# docs/design/architecture.md. Unit tests that sit beside the code become one test program, deltawire_<name>_test.
# NO_TWIN: it is compiled once, and programs with it have no twin. UNSANITIZED: it is compiled once, and twins have the same
# objects; kernels that this machine can't run would be sanitized for nobody.
function(deltawire_layer name)
  cmake_parse_arguments(ARG "OBJECTS;UNITY_GROUPS;UNSANITIZED;NO_TWIN" "SHARDS;BUT"
                        "SOURCES;TESTS;DEPENDS;LIBRARIES;OPTIONS;RELEASED_ONLY;RELEASED_TOO;CHECK_ONLY" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB_RECURSE ARG_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cc)
    list(FILTER ARG_SOURCES EXCLUDE REGEX "(^|/)fuzz_")
    if(ARG_BUT)
      list(FILTER ARG_SOURCES EXCLUDE REGEX "${ARG_BUT}")
    endif()
    set(ARG_TESTS ${ARG_SOURCES})
    list(FILTER ARG_TESTS INCLUDE REGEX "_test(ing)?\\.cc$")
    list(FILTER ARG_SOURCES EXCLUDE REGEX "_test(ing)?\\.cc$")
  endif()
  set(type OBJECT)
  if(NOT ARG_OBJECTS AND (DELTAWIRE_TESTS OR DELTAWIRE_CLI OR DELTAWIRE_PYTHON OR DELTAWIRE_BENCH))
    set(type STATIC)
  endif()
  set(unity_mode BATCH)
  if(ARG_UNITY_GROUPS)
    set(unity_mode GROUP)
  endif()
  add_library(deltawire_${name} ${type} ${ARG_SOURCES})
  add_library(deltawire::${name} ALIAS deltawire_${name})
  list(TRANSFORM ARG_DEPENDS PREPEND deltawire:: OUTPUT_VARIABLE depends)
  target_include_directories(deltawire_${name} PUBLIC ${include_folders})
  target_compile_options(deltawire_${name} PRIVATE ${ARG_OPTIONS})
  set_target_properties(deltawire_${name} PROPERTIES
                        UNITY_BUILD ${DELTAWIRE_SHORT_BUILD} UNITY_BUILD_MODE ${unity_mode})
  target_link_libraries(deltawire_${name} PUBLIC tl::expected Threads::Threads ${depends} PRIVATE ${ARG_LIBRARIES})
  set(own_flags OFF)  # those that precompiled headers would have to have, too
  if(ARG_OPTIONS MATCHES "-[fm]")
    set(own_flags ON)
  endif()
  if(NOT own_flags)
    deltawire_precompile(deltawire_${name} libraries)
  endif()
  deltawire_gather("${ARG_DEPENDS}" below below)
  deltawire_gather("${ARG_DEPENDS}" libraries libraries)
  set_property(GLOBAL PROPERTY deltawire_below_${name} ${name} ${below})
  set_property(GLOBAL PROPERTY deltawire_libraries_${name} ${ARG_LIBRARIES} ${libraries})
  if(DELTAWIRE_SANITIZED_TWIN AND ARG_UNSANITIZED)
    add_library(deltawire_${name}_sanitized ALIAS deltawire_${name})
  elseif(DELTAWIRE_SANITIZED_TWIN AND NOT ARG_NO_TWIN)
    add_library(deltawire_${name}_sanitized OBJECT ${ARG_SOURCES})
    target_compile_options(deltawire_${name}_sanitized PRIVATE ${ARG_OPTIONS} ${twin_options})
    set_target_properties(deltawire_${name}_sanitized PROPERTIES
                          UNITY_BUILD ${DELTAWIRE_SHORT_BUILD} UNITY_BUILD_MODE ${unity_mode})
    target_link_libraries(deltawire_${name}_sanitized PRIVATE deltawire::${name} ${ARG_LIBRARIES})
    if(NOT own_flags)
      deltawire_precompile(deltawire_${name}_sanitized twins)
    endif()
  endif()
  if(ARG_TESTS)
    deltawire_test(deltawire_${name}_test SOURCES ${ARG_TESTS} LAYERS ${name} LIBRARIES GTest::gtest_main deltawire_property
                   SHARDS ${ARG_SHARDS} RELEASED_ONLY ${ARG_RELEASED_ONLY} RELEASED_TOO ${ARG_RELEASED_TOO}
                   CHECK_ONLY ${ARG_CHECK_ONLY})
  endif()
endfunction()

# deltawire_compile_tests(TARGET): sets how a target with tests or test helpers is compiled. Each test file has its own
# namespace; helpers of several files have none and are compiled alone.
function(deltawire_compile_tests target)
  target_compile_options(${target} PRIVATE ${test_options})
  get_target_property(sources ${target} SOURCES)
  if(sources MATCHES "\\.c(;|$)")  # what is precompiled is C++
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${DELTAWIRE_SHORT_BUILD})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(sources)
    set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  deltawire_precompile(${target} tests)
endfunction()

# deltawire_test_program(NAME [PLAIN] SOURCES file... LAYERS layer... [LIBRARIES target...])
# The program NAME and, where twins are wanted, NAME_sanitized (PLAIN: none).
function(deltawire_test_program name)
  cmake_parse_arguments(ARG "PLAIN" "" "SOURCES;LAYERS;LIBRARIES" ${ARGN})
  list(TRANSFORM ARG_LAYERS PREPEND deltawire:: OUTPUT_VARIABLE layers)
  add_library(${name}_objects OBJECT ${ARG_SOURCES})
  target_include_directories(${name}_objects PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name}_objects PRIVATE ${layers} ${ARG_LIBRARIES})
  deltawire_compile_tests(${name}_objects)
  add_executable(${name} $<TARGET_OBJECTS:${name}_objects>)
  target_link_libraries(${name} PRIVATE ${layers} ${ARG_LIBRARIES})
  deltawire_gather("${ARG_LAYERS}" below below)
  deltawire_gather("${ARG_LAYERS}" libraries libraries)
  set(has_twin ${DELTAWIRE_SANITIZED_TWIN})
  foreach(layer IN LISTS below)
    if(ARG_PLAIN OR NOT TARGET deltawire_${layer}_sanitized)
      set(has_twin OFF)
    endif()
  endforeach()
  if(NOT has_twin)
    return()
  endif()
  add_executable(${name}_sanitized)
  # The libraries' objects come first: of an inline function that both sides compiled, the linker takes the first.
  foreach(layer IN LISTS below)
    target_sources(${name}_sanitized PRIVATE $<TARGET_OBJECTS:deltawire_${layer}_sanitized>)
  endforeach()
  target_sources(${name}_sanitized PRIVATE $<TARGET_OBJECTS:${name}_objects>)
  target_link_libraries(${name}_sanitized PRIVATE ${libraries} ${ARG_LIBRARIES} Threads::Threads)
  target_link_options(${name}_sanitized PRIVATE -fsanitize=address,undefined)
endfunction()

# deltawire_test(NAME SOURCES file... LAYERS layer... [LIBRARIES target...] [SHARDS n] [RELEASED_ONLY case...]
#                [RELEASED_TOO case...] [CHECK_ONLY case...] [ARGUMENTS text...])
# A test program, and the tests that run it: all its cases in one process, or divided among SHARDS processes, which suits
# tests that wait. One case alone: NAME --gtest_filter=CASE.
function(deltawire_test name)
  if(NOT DELTAWIRE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "SHARDS" "SOURCES;LAYERS;LIBRARIES;RELEASED_ONLY;RELEASED_TOO;CHECK_ONLY;ARGUMENTS" ${ARGN})
  deltawire_test_program(${name} SOURCES ${ARG_SOURCES} LAYERS ${ARG_LAYERS} LIBRARIES ${ARG_LIBRARIES})
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  deltawire_shards(${name} ${ARG_SHARDS} RELEASED_ONLY ${ARG_RELEASED_ONLY} RELEASED_TOO ${ARG_RELEASED_TOO}
                   CHECK_ONLY ${ARG_CHECK_ONLY} ARGUMENTS ${ARG_ARGUMENTS})
endfunction()

# deltawire_shards(PROGRAM COUNT [RELEASED_ONLY case...] [RELEASED_TOO case...] [CHECK_ONLY case...] [ARGUMENTS text...]): the
# tests PROGRAM.1 to PROGRAM.COUNT.
function(deltawire_shards program count)
  cmake_parse_arguments(ARG "" "" "RELEASED_ONLY;RELEASED_TOO;CHECK_ONLY;ARGUMENTS" ${ARGN})
  foreach(shard RANGE 1 ${count})
    math(EXPR index "${shard} - 1")
    set(environment GTEST_TOTAL_SHARDS=${count} GTEST_SHARD_INDEX=${index})
    deltawire_run(${program}.${shard} PROGRAM ${program} ARGUMENTS ${ARG_ARGUMENTS} ENVIRONMENT ${environment}
                  RELEASED_ONLY ${ARG_RELEASED_ONLY} RELEASED_TOO ${ARG_RELEASED_TOO} CHECK_ONLY ${ARG_CHECK_ONLY})
  endforeach()
endfunction()

# deltawire_run(TEST PROGRAM program [RELEASED_ONLY case...] [RELEASED_TOO case...] [CHECK_ONLY case...] [LAUNCHER text...]
#               [ARGUMENTS text...] [ENVIRONMENT setting...])
# Registers TEST, which runs all cases of the program. Where twins are wanted, TEST has the label "twice", which the preset
# `release` leaves out and `make check` runs; in `release` each case runs once, or not at all: TEST.sanitized runs the twin, and
# TEST.released the cases that need the released libraries. The lists are GoogleTest patterns: RELEASED_ONLY are slow cases
# that check results and access no memory that others don't; RELEASED_TOO are run by both; CHECK_ONLY are more of what others
# show, for `make check` and mutants. A program without a twin is split only for CHECK_ONLY, and has TEST.released alone.
# Both have DELTAWIRE_BRIEF (base/brief_testing.h), by which long series are shortened.
function(deltawire_run test)
  cmake_parse_arguments(ARG "" "PROGRAM" "LAUNCHER;ARGUMENTS;ENVIRONMENT;RELEASED_ONLY;RELEASED_TOO;CHECK_ONLY" ${ARGN})
  set(released ${ARG_PROGRAM})  # by its target's name CTest has the emulator run it, where there is one
  if(ARG_LAUNCHER)
    set(released ${ARG_LAUNCHER} $<TARGET_FILE:${ARG_PROGRAM}>)
  endif()
  set(has_twin OFF)
  if(TARGET ${ARG_PROGRAM}_sanitized)
    set(has_twin ON)
  endif()
  deltawire_register(${test} COMMAND ${released} ${ARG_ARGUMENTS} ENVIRONMENT ${ARG_ENVIRONMENT})
  if(NOT has_twin AND NOT (DELTAWIRE_SANITIZED_TWIN AND ARG_CHECK_ONLY))
    return()
  endif()
  set_tests_properties(${test} PROPERTIES LABELS twice)
  list(JOIN ARG_CHECK_ONLY ":" check_only)
  set(filters ${ARG_RELEASED_ONLY} ${ARG_RELEASED_TOO})
  if(NOT has_twin)
    set(filters *)
  endif()
  if(filters)
    list(JOIN filters ":" filters)
    deltawire_register(${test}.released COMMAND ${released} ${ARG_ARGUMENTS}
                       ENVIRONMENT ${ARG_ENVIRONMENT} DELTAWIRE_BRIEF=1 "GTEST_FILTER=${filters}-${check_only}")
  endif()
  if(has_twin)
    list(JOIN ARG_RELEASED_ONLY ":" released_only)
    deltawire_register(${test}.sanitized COMMAND ${ARG_LAUNCHER} $<TARGET_FILE:${ARG_PROGRAM}_sanitized> ${ARG_ARGUMENTS}
                       ENVIRONMENT ${twin_environment} ${ARG_ENVIRONMENT} DELTAWIRE_BRIEF=1
                                   "GTEST_FILTER=-${released_only}:${check_only}")
  endif()
endfunction()

# deltawire_register(TEST COMMAND program... ENVIRONMENT setting...)
function(deltawire_register test)
  cmake_parse_arguments(ARG "" "" "COMMAND;ENVIRONMENT" ${ARGN})
  add_test(NAME ${test} COMMAND ${ARG_COMMAND})
  set_tests_properties(${test} PROPERTIES TIMEOUT ${time_limit} PROCESSORS ${test_slots} COST ${test_cost}
                                          ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()
