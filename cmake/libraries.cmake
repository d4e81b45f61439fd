# The libraries that users link: a static and a shared one, both from the layers' objects, which are compiled once, and the
# optional one over MPI.
#
#   deltawire::deltawire   the one that BUILD_SHARED_LIBS asks for
#   deltawire::static, deltawire::shared
#   deltawire::mpi         to link in addition, if it is built
#
# As a part of another project only the library that it asks for is built.
if(PROJECT_IS_TOP_LEVEL)
  set(DELTAWIRE_LIBRARY_KINDS static shared)
elseif(BUILD_SHARED_LIBS)
  set(DELTAWIRE_LIBRARY_KINDS shared)
else()
  set(DELTAWIRE_LIBRARY_KINDS static)
endif()
if(BUILD_SHARED_LIBS)
  set(deltawire_kind shared)
else()
  set(deltawire_kind static)
endif()
# Before 1.0 a minor version may change what programs were compiled against.
set(deltawire_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# deltawire_library(NAME LAYERS layer... FUNCTIONS pattern... [C_FUNCTIONS pattern...] [BESIDE library])
# lib<NAME>.a and lib<NAME>.so of the layers and all below them; the shared one exports only the functions. BESIDE: the
# static library holds only the layers and needs that library too; the shared one contains what it needs of it, and uses
# it through the public headers only.
function(deltawire_library name)
  cmake_parse_arguments(ARG "" "BESIDE" "LAYERS;FUNCTIONS;C_FUNCTIONS" ${ARGN})
  string(REGEX REPLACE "^deltawire_?" "" component ${name})
  foreach(kind IN LISTS DELTAWIRE_LIBRARY_KINDS)
    set(target ${name}_${kind})
    set(layers ${ARG_LAYERS})
    if(NOT ARG_BESIDE OR kind STREQUAL "shared")
      deltawire_gather("${ARG_LAYERS}" below layers)
    endif()
    list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:deltawire_\\1>" OUTPUT_VARIABLE objects)
    string(TOUPPER ${kind} type)
    add_library(${target} ${type} ${objects})
    deltawire_gather("${layers}" libraries libraries)
    target_link_libraries(${target} PUBLIC tl::expected Threads::Threads PRIVATE ${libraries})
    if(ARG_BESIDE)
      target_link_libraries(${target} PUBLIC ${ARG_BESIDE}_${kind})
    endif()
    target_compile_features(${target} PUBLIC cxx_std_20)
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    string(JOIN _ export_name ${component} ${kind})
    set_target_properties(${target} PROPERTIES
      OUTPUT_NAME ${name} EXPORT_NAME ${export_name} LINKER_LANGUAGE CXX
      ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
    if(kind STREQUAL "shared")
      deltawire_show(${target} ${name} "${ARG_FUNCTIONS}" "${ARG_C_FUNCTIONS}")
    endif()
    add_library(deltawire::${export_name} ALIAS ${target})
  endforeach()
  if(NOT component)
    set(component deltawire)
  endif()
  add_library(deltawire::${component} ALIAS ${name}_${deltawire_kind})
endfunction()

# deltawire_show(TARGET NAME FUNCTIONS C_FUNCTIONS): the shared library's name with its version, and its symbols.
function(deltawire_show target name functions c_functions)
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${deltawire_soversion})
  if(APPLE)
    return()  # its linker has no version scripts; what the compiler hides is hidden
  endif()
  foreach(list functions c_functions)
    set(lines)
    foreach(pattern IN LISTS ${list})
      string(APPEND lines "${pattern};\n      ")
    endforeach()
    set(${list} "${lines}")
  endforeach()
  set(map ${PROJECT_BINARY_DIR}/${name}.map)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/exports.map.in ${map} @ONLY)
  target_link_options(${target} PRIVATE LINKER:--version-script=${map})
  if(NOT DELTAWIRE_SANITIZE)  # sanitizers leave their own symbols to the program
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
endfunction()

deltawire_library(deltawire LAYERS planner server elastic model c
                  FUNCTIONS deltawire::* C_FUNCTIONS deltawire_*)
if(DELTAWIRE_HAS_MPI)
  deltawire_library(deltawire_mpi LAYERS transport_mpi BESIDE deltawire
                    FUNCTIONS "deltawire::has_mpi*" "deltawire::connect_mpi*")
endif()
