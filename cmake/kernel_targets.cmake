# The instruction sets that kernels are written for, in the order of TargetId, each with its files' suffix and flags:
# `targets`, suffix_TARGET and flags_TARGET. src/codecs/dispatch.cc asks the CPU for the same features.
set(targets reference)
set(suffix_reference ref)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND targets avx2 avx512 avx512vbmi)
  set(flags_avx2 -mavx2 -mf16c -mbmi -mbmi2)
  set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  set(flags_avx512vbmi ${flags_avx512} -mavx512vbmi -mavx512vbmi2)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|ARM64|arm64)$")
  list(APPEND targets neon)
endif()
foreach(target IN LISTS targets)
  if(flags_${target} AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12's own headers write an undefined vector as one that is initialized with itself, and then warn of it.
    list(APPEND flags_${target} -Wno-maybe-uninitialized -Wno-uninitialized)
    # Without optimization its intrinsics that take a constant are macros, which change the signs of masks.
    list(APPEND flags_${target} $<$<CONFIG:Debug>:-Wno-sign-conversion>)
  endif()
  if(NOT target STREQUAL "reference")
    set(suffix_${target} ${target})
    list(APPEND flags_${target} -DDELTAWIRE_TARGET=${target})
  endif()
endforeach()
