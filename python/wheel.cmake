# What a wheel holds beside the package: the program, as it is, where the environment has its commands (a launcher in
# Python would be slower, and ignore SIGPIPE); and the licences of what is linked in.
set(programs)
if(DELTAWIRE_CLI)
  set(programs deltawire)
  add_dependencies(deltawire_wheel deltawire)
  install(TARGETS deltawire RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
endif()

if(DELTAWIRE_STATIC_WHEEL)
  foreach(target deltawire_python ${programs})
    # What of libarchive nobody calls needs libraries of its own (libxml2 for xar): it goes, as unused sections do. The
    # archives' functions are nobody else's, so that those of Debian's zstd need no relocation. Not libgcc, which all
    # systems have: a static one takes a newer glibc (2.35).
    target_link_options(${target} PRIVATE -static-libstdc++ LINKER:--gc-sections LINKER:--exclude-libs,ALL)
  endforeach()
  set(linked libexpected-dev libssl-dev libstdc++-12-dev libxxhash-dev libzstd-dev nlohmann-json3-dev zlib1g-dev)
  if(DELTAWIRE_CLI)
    target_sources(deltawire PRIVATE ${CMAKE_CURRENT_LIST_DIR}/older_glibc.cc)
    list(APPEND linked libarchive-dev libbz2-dev libcli11-dev liblzma-dev nettle-dev)
  endif()
  foreach(package IN LISTS linked)
    set(licence /usr/share/doc/${package}/copyright)
    if(NOT EXISTS ${licence})
      message(FATAL_ERROR "DELTAWIRE_STATIC_WHEEL adds the licences of what it links, and ${licence} is missing; "
                          "it works with Debian's packages")
    endif()
    get_filename_component(licence ${licence} REALPATH)  # some are links
    install(FILES ${licence} DESTINATION ${SKBUILD_METADATA_DIR}/licenses/linked RENAME ${package}.txt COMPONENT python)
  endforeach()
endif()
