# The optional fabrics: AUTO builds those whose library is installed, ON requires it, OFF leaves them out.
# Sets DELTAWIRE_HAS_GLOO and DELTAWIRE_HAS_MPI. As a part of another project the default is OFF.
if(PROJECT_IS_TOP_LEVEL)
  set(deltawire_fabrics_default AUTO)
else()
  set(deltawire_fabrics_default OFF)
endif()
set(DELTAWIRE_GLOO ${deltawire_fabrics_default} CACHE STRING "Transport over Gloo: AUTO, ON or OFF")
set(DELTAWIRE_MPI ${deltawire_fabrics_default} CACHE STRING "Transport over MPI: AUTO, ON or OFF")

# deltawire_fabric(NAME, Debian package, arguments of find_package...)
function(deltawire_fabric name debian_package)
  set(choice "${DELTAWIRE_${name}}")
  if(NOT choice MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "DELTAWIRE_${name} is '${choice}'; it can be AUTO, ON or OFF")
  endif()
  set(found FALSE)
  if(NOT choice STREQUAL "OFF")
    find_package(${ARGN} QUIET GLOBAL)
    list(GET ARGN 0 package)
    set(found "${${package}_FOUND}")
    if(choice STREQUAL "ON" AND NOT found)
      message(FATAL_ERROR "DELTAWIRE_${name} is ON, but ${package} was not found; install it "
                          "(Debian: ${debian_package}) or set ${package}_ROOT")
    endif()
  endif()
  if(found)
    message(STATUS "Transport over ${name}: yes")
  else()
    message(STATUS "Transport over ${name}: no (${debian_package} not found, or switched off)")
  endif()
  set(DELTAWIRE_HAS_${name} "${found}" PARENT_SCOPE)
endfunction()

# Debian's package has its configuration in a folder that CMake doesn't search.
deltawire_fabric(GLOO libgloo-dev Gloo CONFIG PATHS /usr/share/cmake/Gloo)
set(MPI_CXX_SKIP_MPICXX ON)  # the old bindings for C++, which MPI 3 has removed
deltawire_fabric(MPI "libopenmpi-dev openmpi-bin" MPI COMPONENTS CXX)
