# CUDA headers per major version, as interface libraries cuda_headers_12 and cuda_headers_13.
# Looked for in: FRAGSCOPE_CUDA12_INCLUDE / FRAGSCOPE_CUDA13_INCLUDE, the pip header wheels that
# tools/setup.sh unpacks below the cache directory, an installed toolkit (>= 12.4).

if(DEFINED ENV{XDG_CACHE_HOME})
  set(FRAGSCOPE_CACHE $ENV{XDG_CACHE_HOME}/fragscope)
else()
  set(FRAGSCOPE_CACHE $ENV{HOME}/.cache/fragscope)
endif()

set(FRAGSCOPE_CUDA_MAJORS "")
foreach(major 12 13)
  set(FRAGSCOPE_CUDA${major}_INCLUDE "" CACHE PATH "Directory of cuda.h, CUDA ${major}")
  set(found "")
  foreach(dir ${FRAGSCOPE_CUDA${major}_INCLUDE} ${FRAGSCOPE_CACHE}/cuda-headers/${major}/include
              /usr/local/cuda/include /usr/include)
    if(NOT found AND EXISTS ${dir}/cuda.h AND EXISTS ${dir}/cuda_runtime_api.h)
      file(STRINGS ${dir}/cuda.h line REGEX "^#define CUDA_VERSION ${major}[0-9][0-9][0-9]$")
      if(line)
        set(found ${dir})
      endif()
    endif()
  endforeach()
  if(found)
    message(STATUS "CUDA ${major} headers: ${found}")
    add_library(cuda_headers_${major} INTERFACE)
    target_include_directories(cuda_headers_${major} SYSTEM INTERFACE ${found})
    list(APPEND FRAGSCOPE_CUDA_MAJORS ${major})
  endif()
endforeach()
if(NOT FRAGSCOPE_CUDA_MAJORS)
  message(FATAL_ERROR "No CUDA headers found: run tools/setup.sh, or set FRAGSCOPE_CUDA13_INCLUDE")
endif()
