# What every target of the project shares: language level, warnings, sanitizers, output layout.
# The layout is a contract: build/<preset>/{bin,lib,lib/fragscope/sim}; `make install` gives the same.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(FRAGSCOPE_SIM_DIR ${CMAKE_BINARY_DIR}/lib/fragscope/sim)

find_program(FRAGSCOPE_CCACHE ccache)
if(FRAGSCOPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FRAGSCOPE_CCACHE})
endif()

find_package(Threads REQUIRED)

add_library(fragscope_options INTERFACE)
target_include_directories(fragscope_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
target_compile_options(fragscope_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                                   -Wno-sign-conversion -Wnon-virtual-dtor)
if(FRAGSCOPE_WERROR)
  target_compile_options(fragscope_options INTERFACE -Werror)
endif()

# Sanitizers: everything but what is preloaded into foreign processes (shim, stand-ins).
add_library(fragscope_sanitize INTERFACE)
if(FRAGSCOPE_SANITIZE)
  target_compile_options(fragscope_sanitize INTERFACE -fsanitize=${FRAGSCOPE_SANITIZE}
                                                      -fno-omit-frame-pointer)
  target_link_options(fragscope_sanitize INTERFACE -fsanitize=${FRAGSCOPE_SANITIZE})
endif()

# fragscope_library(NAME SOURCES a.cpp … DEPS base event … LINK external …)
# A folder of src/ as static library `fs_NAME`; DEPS are other folders, LINK are external targets.
function(fragscope_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LINK" ${ARGN})
  if(ARG_SOURCES)
    add_library(fs_${name} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(fs_${name} PRIVATE fragscope_sanitize)
  else()
    add_library(fs_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(fs_${name} ${scope} fragscope_options)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(fs_${name} ${scope} fs_${dep})
  endforeach()
  target_link_libraries(fs_${name} ${scope} ${ARG_LINK})
endfunction()
