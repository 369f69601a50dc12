# Programs that are recorded on the simulated GPU: programs/cuda_*.cpp -> <build>/tests/cuda/. Linked
# with the stand-in of the CUDA runtime and without any run path: `fragscope run --gpu` must find it.
if(13 IN_LIST FRAGSCOPE_CUDA_MAJORS AND TARGET sim_cudart_13)
  file(GLOB cuda_programs CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/e2e/programs/cuda_*.cpp)
  foreach(source IN LISTS cuda_programs)
    get_filename_component(program ${source} NAME_WE)
    add_executable(${program} ${source})
    target_link_libraries(${program} PRIVATE fragscope_options cuda_headers_13 Threads::Threads
                                             ${FRAGSCOPE_SIM_DIR}/libcudart.so.13)
    add_dependencies(${program} sim_cudart_13)
    if(program MATCHES "cuda_(served|soak)")  # calls the driver too
      target_link_libraries(${program} PRIVATE ${FRAGSCOPE_SIM_DIR}/libcuda.so.1)
      add_dependencies(${program} sim_cuda)
    endif()
    if(program STREQUAL cuda_soak)
      target_link_libraries(${program} PRIVATE fs_enforce)
      target_compile_options(${program} PRIVATE -O2)
    endif()
    set_target_properties(${program} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda SKIP_BUILD_RPATH ON)
  endforeach()
  # Its allocator is the model over the CUDA runtime, as in the demo.
  target_sources(cuda_scenario PRIVATE ${CMAKE_SOURCE_DIR}/tools/demo/cached_tensors.cpp
                                       ${CMAKE_SOURCE_DIR}/tools/demo/mapped_ranges.cpp)
  target_link_libraries(cuda_scenario PRIVATE fs_model ${CMAKE_DL_LIBS})
endif()
