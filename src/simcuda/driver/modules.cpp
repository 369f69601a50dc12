// Modules, kernels and launches. Code is never looked at: any name is a kernel of any module, with
// attributes that keep callers' arithmetic sane, and a launch does nothing but end the life of
// stored values.
#include <cstring>

#include "base/bytes.h"
#include "simcuda/driver/driver_state.h"

using namespace fragscope;

namespace fragscope::simcuda {

namespace {

// The result: when it begins (kernel_time.cpp).
uint64_t execute(DriverState& state, CUstream_st& stream, const AnswerRule* rule,
                 void** arguments) {
  Device& device = *stream.context->device;
  device.overlay.expire();
  device.answers.launched(rule, arguments);
  return occupy(state, stream);
}

}  // namespace

CUresult launch_on(DriverState& state, CUcontext context, CUstream handle, const KernelShape& shape,
                   const AnswerRule* rule, void** arguments) {
  const CUstream stream = find_stream(state, context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUgraphNode node = nullptr;
  if (capture_node(state, stream, CU_GRAPH_NODE_TYPE_KERNEL, &node)) {
    node->kernel = std::make_shared<NodeKernel>(shape, state.next_graph_number++);
    return CUDA_SUCCESS;
  }
  const uint64_t start_ns = execute(state, *stream, rule, arguments);
  report_kernel(state, *stream, shape, start_ns);
  return CUDA_SUCCESS;
}

CUresult launch_graph(DriverState& state, CUstream_st& stream, const CUgraphExec_st& exec) {
  const uint64_t start_ns = execute(state, stream, nullptr, nullptr);
  report_graph(state, stream, exec, start_ns);
  return CUDA_SUCCESS;
}

namespace {

CUkernel kernel_of(DriverState& state, CUmod_st& module, const char* name) {
  auto& kernel = module.functions[name];
  if (kernel == nullptr) {
    kernel = std::make_unique<CUkern_st>();
    kernel->function.name = name;
    kernel->function.module = &module;
    kernel->function.answer = state.answers.find(name);
  }
  return kernel.get();
}

// A module's variables belong to the context's bytes, so they get addresses without a charge. Sizes
// are not known here: each gets a page.
CUresult global_of(DriverState& state, CUmod_st& module, const char* name, CUdeviceptr* address,
                   size_t* bytes) {
  auto [found, fresh] = module.globals.emplace(name, 0);
  if (fresh) {
    const CUcontext context = current_context();
    Device& device = context != nullptr ? *context->device : *state.devices.front();
    const auto at = device.memory.reserve_range(model::kDevicePage);
    if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
    state.mappings[*at] = {model::kDevicePage, 0};
    found->second = *at;
  }
  if (address != nullptr) *address = found->second;
  if (bytes != nullptr) *bytes = model::kDevicePage;
  return CUDA_SUCCESS;
}

CUresult load_module(CUmodule* out, const void* image) {
  return with_context([&](DriverState& state, CUctx_st&) {
    if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto module = std::make_unique<CUmod_st>();
    *out = module.get();
    state.modules.emplace(*out, std::move(module));
    return CUDA_SUCCESS;
  });
}

CUresult load_library(CUlibrary* out, const void* code) {
  return with_state([&](DriverState& state) {
    if (out == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto library = std::make_unique<CUlib_st>();
    *out = library.get();
    state.libraries.emplace(*out, std::move(library));
    return CUDA_SUCCESS;
  });
}

CUresult function_attribute(const SimConfig& config, const CUfunc_st& function,
                            CUfunction_attribute attribute, int* value) {
  const auto set = function.attributes.find(attribute);
  const int architecture = config.cc_major * 10 + config.cc_minor;
  if (set != function.attributes.end()) {
    *value = set->second;
    return CUDA_SUCCESS;
  }
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = architecture;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = 49152;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = -1;
      break;
    default:
      if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;  // static shared, constant and local bytes, cache mode, cluster shape
  }
  return CUDA_SUCCESS;
}

CUresult set_attribute(CUfunc_st* function, CUfunction_attribute attribute, int value) {
  return with_state([&](DriverState& state) {
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    bool known = false;
    const int limit = device_attribute(
        state.config, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0, known);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > limit) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
  });
}

CUresult launch(CUfunction function, KernelShape shape, CUstream stream, void** arguments,
                const char* caller = __builtin_FUNCTION()) {
  ApiCall call(&g_activity_tap, ApiDomain::kDriver, caller);
  return call.ends_with(with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const auto& [grid_x, grid_y, grid_z] = shape.grid;
    const auto& [block_x, block_y, block_z] = shape.block;
    const bool empty =
        grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0;
    const bool too_large = grid_x > 2147483647U || grid_y > 65535 || grid_z > 65535 ||
                           static_cast<uint64_t>(block_x) * block_y * block_z > 1024;
    if (empty || too_large) return CUDA_ERROR_INVALID_VALUE;
    shape.name = function->name.c_str();
    return launch_on(state, &context, stream, shape, function->answer, arguments);
  }));
}

int blocks_per_sm(const SimConfig& config, int block_size, size_t dynamic_shared) {
  bool known = false;
  const auto limit = [&](CUdevice_attribute attribute) {
    return device_attribute(config, attribute, 0, known);
  };
  const int warps = (block_size + 31) / 32;
  const int by_threads =
      limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / 32 / (warps > 0 ? warps : 1);
  int blocks = std::min(by_threads, limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
  if (dynamic_shared > 0) {
    const auto shared =
        static_cast<size_t>(limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
    blocks = std::min(blocks, static_cast<int>(shared / (dynamic_shared + 1024)));
  }
  return blocks;
}

}  // namespace

}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

extern "C" {

// Private to our own stand-ins: a math library did device work on this stream.
__attribute__((visibility("default"))) int fragscope_sim_note_launch(const char* name,
                                                                     CUstream stream) {
  // Such a library launches by a runtime of its own.
  ApiCall call(&g_activity_tap, ApiDomain::kRuntime, "cudaLaunchKernel");
  return call.ends_with(with_context([&](DriverState& state, CUctx_st& context) {
    KernelShape shape;
    shape.name = name;
    return launch_on(state, &context, stream, shape, state.answers.find(name));
  }));
}

// A library chose a size by our formula.
__attribute__((visibility("default"))) void fragscope_sim_note_assumed(const char* name,
                                                                       size_t bytes) {
  DriverState* state = nullptr;
  if (ready_state(state) == CUDA_SUCCESS) {
    state->ledger->note(Ledger::Kind::kAssumed, name, bytes);
  }
}

__attribute__((visibility("default"))) void fragscope_sim_note_unsupported(const char* name) {
  unsupported_call(name);
}

CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* path) {
  return load_module(module, path);
}
CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  return load_module(module, image);
}
CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int,
                                    CUjit_option*, void**) {
  return load_module(module, image);
}
CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return load_module(module, image);
}
CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  return with_state([&](DriverState& state) {
    return state.modules.erase(module) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}
CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return with_state([&](DriverState& state) {
    if (out == nullptr || module == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = &kernel_of(state, *module, name)->function;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module,
                                      const char* name) {
  return with_state([&](DriverState& state) {
    if (module == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return global_of(state, *module, name, address, bytes);
  });
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**,
                                   unsigned int, CUlibraryOption*, void**, unsigned int) {
  return load_library(library, code);
}
CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**,
                                       unsigned int, CUlibraryOption*, void**, unsigned int) {
  return load_library(library, path);
}
CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
  return with_state([&](DriverState& state) {
    return state.libraries.erase(library) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  return with_state([&](DriverState& state) {
    if (out == nullptr || library == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = kernel_of(state, library->module, name);
    (*out)->function.library = library;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  if (module == nullptr || library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = &library->module;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                                    const char* name) {
  return with_state([&](DriverState& state) {
    if (library == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return global_of(state, library->module, name, address, bytes);
  });
}
CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  if (function == nullptr || kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = &kernel->function;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel kernel) {
  if (name == nullptr || kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->function.name.c_str();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction function) {
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetModule(CUmodule* module, CUfunction function) {
  if (module == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = function->module;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                    CUfunction function) {
  return with_state([&](DriverState& state) {
    if (value == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return function_attribute(state.config, *function, attribute, value);
  });
}
CUresult CUDAAPI cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                      CUdevice) {
  return cuFuncGetAttribute(value, attribute, kernel == nullptr ? nullptr : &kernel->function);
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                    int value) {
  return set_attribute(function, attribute, value);
}
CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                      CUdevice) {
  return set_attribute(kernel == nullptr ? nullptr : &kernel->function, attribute, value);
}
CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache, CUdevice) {
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig) {
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncLoad(CUfunction function) {
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* loaded, CUfunction function) {
  if (loaded == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *loaded = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                unsigned int block_z, unsigned int shared, CUstream stream,
                                void** arguments, void**) {
  return launch(function, {"", {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared},
                stream, arguments);
}
CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                           unsigned int grid_y, unsigned int grid_z,
                                           unsigned int block_x, unsigned int block_y,
                                           unsigned int block_z, unsigned int shared,
                                           CUstream stream, void** arguments) {
  return launch(function, {"", {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared},
                stream, arguments);
}
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                  void** arguments, void**) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch(function,
                {"",
                 {config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes},
                config->hStream, arguments);
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction,
                                                                      int block_size,
                                                                      size_t dynamic_shared,
                                                                      unsigned int) {
  return with_state([&](DriverState& state) {
    if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
    *blocks = blocks_per_sm(state.config, block_size, dynamic_shared);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                             int block_size,
                                                             size_t dynamic_shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                              dynamic_shared, 0);
}
CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction,
                                                           CUoccupancyB2DSize, size_t, int limit,
                                                           unsigned int) {
  return with_state([&](DriverState& state) {
    if (grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    *grid = state.config.sm_count * blocks_per_sm(state.config, *block, 0);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function,
                                                  CUoccupancyB2DSize sizes, size_t shared,
                                                  int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, sizes, shared, limit, 0);
}
CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction, int blocks,
                                                         int) {
  return with_state([&](DriverState&) {
    if (bytes == nullptr || blocks <= 0) return CUDA_ERROR_INVALID_VALUE;
    *bytes = 49152 / static_cast<size_t>(blocks);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  return with_state([&](DriverState& state) {
    if (clusters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *clusters = std::max(1, state.config.sm_count / 2);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int* size, CUfunction, const CUlaunchConfig*) {
  if (size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *size = 8;
  return CUDA_SUCCESS;
}

}  // extern "C"
