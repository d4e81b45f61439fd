# `cmake --install`: the headers, the libraries, and the files that find them (CMake's package, pkg-config). All of it can
# be moved together afterwards. Two components: deltawire_runtime, and deltawire_development for compiling against it.
include(CMakePackageConfigHelpers)
set(deltawire_config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/deltawire)

set(deltawire_components ${DELTAWIRE_LIBRARY_KINDS})
set(deltawire_left_out)
if(TARGET deltawire::mpi)
  list(APPEND deltawire_components mpi)
else()
  list(APPEND deltawire_left_out PATTERN connect_mpi.h EXCLUDE)
endif()

install(DIRECTORY include/deltawire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT deltawire_development
        FILES_MATCHING PATTERN *.h PATTERN *.hpp ${deltawire_left_out})
foreach(name deltawire deltawire_mpi)
  foreach(kind IN LISTS DELTAWIRE_LIBRARY_KINDS)
    set(target ${name}_${kind})
    if(NOT TARGET ${target})
      continue()
    endif()
    install(TARGETS ${target} EXPORT ${target}
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT deltawire_development
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT deltawire_runtime
                    NAMELINK_COMPONENT deltawire_development)
    install(EXPORT ${target} FILE ${target}.cmake NAMESPACE deltawire:: DESTINATION ${deltawire_config_folder}
            COMPONENT deltawire_development)
  endforeach()
endforeach()

configure_package_config_file(cmake/deltawire-config.cmake.in ${PROJECT_BINARY_DIR}/deltawire-config.cmake
                              INSTALL_DESTINATION ${deltawire_config_folder} NO_SET_AND_CHECK_MACRO)
# Before 1.0 the next minor version may be incompatible.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/deltawire-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/deltawire-config.cmake ${PROJECT_BINARY_DIR}/deltawire-config-version.cmake
              cmake/Findzstd.cmake
        DESTINATION ${deltawire_config_folder} COMPONENT deltawire_development)

# Folders relative to the .pc file itself, so that the prefix may be moved.
set(deltawire_pc_folder ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH deltawire_pc_prefix ${deltawire_pc_folder} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH deltawire_pc_include ${deltawire_pc_folder} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/deltawire.pc.in ${PROJECT_BINARY_DIR}/deltawire.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/deltawire.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT deltawire_development)
