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
    # Unused sections go: what of libarchive nobody calls needs libraries of its own (libxml2 for xar).
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc LINKER:--gc-sections)
  endforeach()
  set(linked libexpected-dev libssl-dev libstdc++-12-dev libxxhash-dev libzstd-dev zlib1g-dev)
  if(DELTAWIRE_CLI)
    list(APPEND linked libarchive-dev libbz2-dev libcli11-dev liblzma-dev nettle-dev nlohmann-json3-dev)
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
