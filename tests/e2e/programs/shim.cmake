# Stand-ins and programs of the shim's end-to-end tests -> <build>/tests/shim/.
set(shim_out ${CMAKE_BINARY_DIR}/tests/shim)
set(shim_src ${CMAKE_CURRENT_SOURCE_DIR}/e2e/programs)

function(shim_test_target target)
  target_link_libraries(${target} PRIVATE fragscope_options Threads::Threads)
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${shim_out} LIBRARY_OUTPUT_DIRECTORY ${shim_out}
    BUILD_RPATH ${shim_out} BUILD_RPATH_USE_ORIGIN OFF)
endfunction()

add_library(shim_fake_driver SHARED ${shim_src}/shim_fake_driver.cpp)
shim_test_target(shim_fake_driver)
# As the originals: their own functions are not looked up where a preload could be met.
target_link_options(shim_fake_driver PRIVATE -Wl,-Bsymbolic-functions)
set_target_properties(shim_fake_driver PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1)
foreach(major 12 13)
  set(target shim_fake_runtime_${major})
  file(CONFIGURE OUTPUT ${shim_out}/cudart${major}.map CONTENT "libcudart.so.${major} { *; };\n")
  add_library(${target} SHARED ${shim_src}/shim_fake_runtime.cpp)
  shim_test_target(${target})
  target_compile_definitions(${target} PRIVATE MAJOR=${major})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME cudart SUFFIX .so.${major})
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions -Wl,--version-script=${shim_out}/cudart${major}.map)
endforeach()

foreach(program basic threads fork exit callbacks lookup majors policy descriptors)
  add_executable(shim_${program} ${shim_src}/shim_${program}.cpp)
  shim_test_target(shim_${program})
  target_link_libraries(shim_${program} PRIVATE shim_fake_runtime_13 shim_fake_driver dl)
endforeach()
add_executable(shim_host ${shim_src}/shim_host.cpp)
shim_test_target(shim_host)
target_link_options(shim_host PRIVATE -nodefaultlibs)
target_link_libraries(shim_host PRIVATE shim_fake_runtime_13 c dl gcc)

add_library(shim_plugin MODULE ${shim_src}/shim_plugin.cpp)
shim_test_target(shim_plugin)
target_link_libraries(shim_plugin PRIVATE shim_fake_runtime_12)
add_library(shim_next_preload MODULE ${shim_src}/shim_next_preload.cpp)
shim_test_target(shim_next_preload)
add_library(shim_module MODULE ${shim_src}/shim_module.cpp)
shim_test_target(shim_module)

# Compile-time checks of intercepts.def against each major's headers.
foreach(major IN LISTS FRAGSCOPE_CUDA_MAJORS)
  add_library(shim_abi_check_${major} OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/unit/shim/abi_check.cpp)
  target_link_libraries(shim_abi_check_${major} PRIVATE fragscope_options cuda_headers_${major})
endforeach()
