# Third-party libraries. All that are missing are named at once, with where to get them.
#
# DELTAWIRE_STATIC_WHEEL, for wheels that go to other machines: links them and the C++ standard library statically, so that
# the wheel needs only glibc. Debian has them as static libraries.
option(DELTAWIRE_STATIC_WHEEL "Link all libraries but glibc into the wheel" OFF)
if(DELTAWIRE_STATIC_WHEEL)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS ON)
endif()

# deltawire_require(PACKAGE, what it is called, Debian package, more arguments of find_package...)
function(deltawire_require package title debian_package)
  find_package(${package} ${ARGN} QUIET GLOBAL)
  if(NOT ${package}_FOUND)
    set_property(GLOBAL APPEND PROPERTY deltawire_missing "${title} (Debian: ${debian_package})")
  endif()
endfunction()

# deltawire_require_header(FILE, what it is called, Debian package)
function(deltawire_require_header header title debian_package)
  string(MAKE_C_IDENTIFIER ${header} id)
  find_path(DELTAWIRE_FOLDER_OF_${id} ${header})
  mark_as_advanced(DELTAWIRE_FOLDER_OF_${id})
  if(NOT DELTAWIRE_FOLDER_OF_${id})
    set_property(GLOBAL APPEND PROPERTY deltawire_missing "${title} (Debian: ${debian_package})")
  endif()
endfunction()

# A static libarchive does not name the libraries it needs. Reading and writing zip archives needs these.
function(deltawire_complete_static_archive)
  foreach(need "nettle nettle-dev" "lzma liblzma-dev" "bz2 libbz2-dev" "zstd libzstd-dev" "z zlib1g-dev")
    separate_arguments(need)
    list(POP_FRONT need name debian_package)
    find_library(DELTAWIRE_STATIC_${name} ${name})
    mark_as_advanced(DELTAWIRE_STATIC_${name})
    if(NOT DELTAWIRE_STATIC_${name})
      set_property(GLOBAL APPEND PROPERTY deltawire_missing "a static ${name} (Debian: ${debian_package})")
    elseif(TARGET LibArchive::LibArchive)
      set_property(TARGET LibArchive::LibArchive APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${DELTAWIRE_STATIC_${name}})
    endif()
  endforeach()
endfunction()

# Stops if something is missing; called after all requirements were checked.
function(deltawire_check_requirements)
  get_property(missing GLOBAL PROPERTY deltawire_missing)
  if(NOT missing)
    return()
  endif()
  list(REMOVE_DUPLICATES missing)
  list(JOIN missing ", " missing)
  set(advice "")
  if(DELTAWIRE_CLI)
    set(advice "; -DDELTAWIRE_CLI=OFF leaves out the program, and with it CLI11 and libarchive")
  endif()
  message(FATAL_ERROR "deltawire needs headers and libraries that were not found: ${missing}. Install them, or name "
                      "their folder in CMAKE_PREFIX_PATH${advice}")
endfunction()
