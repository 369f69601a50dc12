# Programs against the simulated runtime -> <build>/tests/sim/<name>_<major>, linked as a CUDA program
# is: by name against libcudart.so.<major>, found at run time in the stand-ins' directory.
foreach(major IN LISTS FRAGSCOPE_CUDA_MAJORS)
  foreach(program memory streams pools devices runtime_calls table interrupted tenant misuse repeat activity)
    add_executable(sim_${program}_${major} ${CMAKE_CURRENT_SOURCE_DIR}/e2e/programs/sim_${program}.cpp)
    target_link_libraries(sim_${program}_${major} PRIVATE
      fragscope_options cuda_headers_${major} sim_cudart_${major} Threads::Threads)
    target_compile_options(sim_${program}_${major} PRIVATE -Wno-deprecated-declarations)
    set_target_properties(sim_${program}_${major} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/sim BUILD_RPATH ${FRAGSCOPE_SIM_DIR})
    add_dependencies(sim_${program}_${major} sim_cuda)
  endforeach()
  target_link_libraries(sim_misuse_${major} PRIVATE sim_cuda)  # of both libraries
  target_link_libraries(sim_activity_${major} PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(sim_activity_${major} sim_cupti_${major})
endforeach()

# The same for the driver alone: sim_every_call_<major> and, with the other default stream, …_ptds.
foreach(major IN LISTS FRAGSCOPE_CUDA_MAJORS)
  foreach(flavour "" _ptds)
    set(name sim_every_call_${major}${flavour})
    add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/e2e/programs/sim_every_call.cpp)
    target_link_libraries(${name} PRIVATE fragscope_options cuda_headers_${major} sim_cuda)
    target_compile_options(${name} PRIVATE -Wno-deprecated-declarations)
    if(flavour)
      target_compile_definitions(${name} PRIVATE CUDA_API_PER_THREAD_DEFAULT_STREAM)
    endif()
    set_target_properties(${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/sim BUILD_RPATH ${FRAGSCOPE_SIM_DIR})
  endforeach()
endforeach()

# Programs that are not linked to CUDA, and a preload beside ours.
add_executable(sim_routes ${CMAKE_CURRENT_SOURCE_DIR}/e2e/programs/sim_routes.cpp)
add_executable(sim_versions ${CMAKE_CURRENT_SOURCE_DIR}/e2e/programs/sim_versions.cpp)
add_executable(sim_static_runtime ${CMAKE_CURRENT_SOURCE_DIR}/e2e/programs/sim_static_runtime.cpp)
add_library(sim_dlsym_preload SHARED ${CMAKE_CURRENT_SOURCE_DIR}/e2e/programs/sim_dlsym_preload.cpp)
list(GET FRAGSCOPE_CUDA_MAJORS -1 newest)
target_link_libraries(sim_static_runtime PRIVATE cuda_headers_${newest})
target_compile_options(sim_static_runtime PRIVATE -Wno-deprecated-declarations)
foreach(target sim_routes sim_static_runtime sim_versions sim_dlsym_preload)
  target_link_libraries(${target} PRIVATE fragscope_options ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/sim
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/sim)
endforeach()
