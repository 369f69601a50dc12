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

foreach(program basic threads fork exit callbacks lookup majors policy descriptors api direct rare stacks)
  add_executable(shim_${program} ${shim_src}/shim_${program}.cpp)
  shim_test_target(shim_${program})
  target_link_libraries(shim_${program} PRIVATE shim_fake_runtime_13 shim_fake_driver dl)
endforeach()
add_executable(shim_host ${shim_src}/shim_host.cpp)
shim_test_target(shim_host)
target_link_options(shim_host PRIVATE -nodefaultlibs)
target_link_libraries(shim_host PRIVATE shim_fake_runtime_13 c dl gcc)

add_executable(shim_absent ${shim_src}/shim_absent.cpp)
shim_test_target(shim_absent)
target_link_libraries(shim_absent PRIVATE dl)
add_library(shim_plugin MODULE ${shim_src}/shim_plugin.cpp)
shim_test_target(shim_plugin)
target_link_libraries(shim_plugin PRIVATE shim_fake_runtime_12)
add_library(shim_next_preload MODULE ${shim_src}/shim_next_preload.cpp)
shim_test_target(shim_next_preload)
add_library(shim_no_wipe MODULE ${shim_src}/shim_no_wipe.cpp)
shim_test_target(shim_no_wipe)
# In a folder of its own: found by those programs alone that are told to look there.
add_library(shim_fake_unwind SHARED ${shim_src}/shim_fake_unwind.cpp)
shim_test_target(shim_fake_unwind)
set_target_properties(shim_fake_unwind PROPERTIES OUTPUT_NAME unwind SUFFIX .so.8
  LIBRARY_OUTPUT_DIRECTORY ${shim_out}/unwind)
add_library(shim_module MODULE ${shim_src}/shim_module.cpp)
shim_test_target(shim_module)

# Compile-time checks of intercepts.def against each major's headers.
foreach(major IN LISTS FRAGSCOPE_CUDA_MAJORS)
  add_library(shim_abi_check_${major} OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/unit/shim/abi_check.cpp)
  target_link_libraries(shim_abi_check_${major} PRIVATE fragscope_options cuda_headers_${major})
endforeach()

# Stand-ins of PyTorch's libraries, named as the originals.
add_library(shim_fake_c10 SHARED ${shim_src}/shim_fake_c10.cpp)
add_library(shim_fake_c10_cuda SHARED ${shim_src}/shim_fake_c10_cuda.cpp)
target_link_libraries(shim_fake_c10_cuda PRIVATE shim_fake_c10)
target_link_options(shim_fake_c10_cuda PRIVATE -Wl,--build-id=0x0123456789abcdef)
add_library(shim_fake_adaptor MODULE ${shim_src}/shim_fake_adaptor.cpp)
target_link_libraries(shim_fake_adaptor PRIVATE shim_fake_c10_cuda)
add_executable(shim_torch ${shim_src}/shim_torch.cpp)
target_link_libraries(shim_torch PRIVATE dl)
foreach(target shim_fake_c10 shim_fake_c10_cuda shim_fake_adaptor shim_torch)
  shim_test_target(${target})
endforeach()
set_target_properties(shim_fake_c10 PROPERTIES OUTPUT_NAME c10)
set_target_properties(shim_fake_c10_cuda PROPERTIES OUTPUT_NAME c10_cuda)
file(STRINGS "${PROJECT_SOURCE_DIR}/shim/torch_adaptor/torch_adaptor.h" adaptor_version
     REGEX "^#define FRAGSCOPE_TORCH_ADAPTOR_VERSION")
string(REGEX MATCH "[0-9]+" adaptor_version "${adaptor_version}")
set_target_properties(shim_fake_adaptor PROPERTIES PREFIX "" OUTPUT_NAME 0123456789abcdef-${adaptor_version})
