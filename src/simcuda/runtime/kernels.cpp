// Registration of device code by host programs, and launches. Programs register tens of thousands
// of kernels when they are loaded, so that only appends; names are looked up at the first use.
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "simcuda/runtime/runtime_internal.h"

namespace fragscope::simcuda {

namespace {

struct FatBinary {
  const void* image;
  CUlibrary library;  // loaded at the first use
};
struct Function {
  const void* host;
  const char* name;
  FatBinary* binary;
  CUkernel kernel;
};
struct Variable {
  const void* host;
  const char* name;
  FatBinary* binary;
  size_t bytes;
};

struct Registry {
  std::mutex lock;
  std::vector<Function> functions;
  std::vector<Variable> variables;
  std::unordered_map<const void*, size_t> by_host;  // into functions
  size_t indexed = 0;
  std::set<const void*> kernels;  // handles given out; they are accepted as functions
};
Registry& registry() {
  static auto* instance = new Registry;  // used by static destructors of any library
  return *instance;
}

CUresult library_of(const DriverCalls& calls, FatBinary& binary) {
  if (binary.library != nullptr) return CUDA_SUCCESS;
  return calls.cuLibraryLoadData(&binary.library, binary.image, nullptr, nullptr, 0, nullptr,
                                 nullptr, 0);
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
constexpr int kConfigurations = 16;
thread_local Configuration t_configurations[kConfigurations];
thread_local int t_configured = 0;

}  // namespace

CUkernel find_kernel(const DriverCalls& calls, const void* function) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  for (; all.indexed < all.functions.size(); ++all.indexed) {
    all.by_host[all.functions[all.indexed].host] = all.indexed;
  }
  const auto found = all.by_host.find(function);
  if (found == all.by_host.end()) {
    if (all.kernels.count(function) == 0) return nullptr;
    return static_cast<CUkernel>(const_cast<void*>(function));
  }
  Function& known = all.functions[found->second];
  if (known.kernel == nullptr && library_of(calls, *known.binary) == CUDA_SUCCESS) {
    calls.cuLibraryGetKernel(&known.kernel, known.binary->library, known.name);
    all.kernels.insert(known.kernel);
  }
  return known.kernel;
}

CUresult find_variable(const DriverCalls& calls, const void* symbol, CUdeviceptr* address,
                       size_t* bytes) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  for (const Variable& known : all.variables) {
    if (known.host != symbol) continue;
    const CUresult loaded = library_of(calls, *known.binary);
    if (loaded != CUDA_SUCCESS) return loaded;
    size_t room = 0;
    const CUresult result =
        calls.cuLibraryGetGlobal(address, &room, known.binary->library, known.name);
    *bytes = known.bytes;
    return result;
  }
  return static_cast<CUresult>(cudaErrorInvalidSymbol);
}

namespace {

CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

CUresult launch(const DriverCalls& calls, CUkernel kernel, dim3 grid, dim3 block, void** arguments,
                size_t shared, cudaStream_t stream) {
  if (kernel == nullptr) return static_cast<CUresult>(cudaErrorInvalidDeviceFunction);
  const CUresult result =
      calls.cuLaunchKernel(as_function(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                           static_cast<unsigned>(shared), stream, arguments, nullptr);
  return result == CUDA_ERROR_INVALID_VALUE ? static_cast<CUresult>(cudaErrorInvalidConfiguration)
                                            : result;
}

[[maybe_unused]] CUresult remember_kernel(CUresult result, const CUkernel* kernel) {
  if (result != CUDA_SUCCESS) return result;
  Registry& all = registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  all.kernels.insert(*kernel);
  return result;
}

CUresult attributes_of(const DriverCalls& calls, CUkernel kernel, cudaFuncAttributes& out) {
  const auto get = [&](CUfunction_attribute attribute) {
    int value = 0;
    calls.cuKernelGetAttribute(&value, attribute, kernel, 0);
    return value;
  };
  out = {};
  out.sharedSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  out.constSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
  out.localSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  out.maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  out.numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
  out.ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
  out.binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
  out.maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  out.preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
  return CUDA_SUCCESS;
}

// body(calls, kernel) for the kernel behind `function`.
template <typename Body>
cudaError_t with_kernel(const void* function, Body body,
                        const char* caller = __builtin_FUNCTION()) noexcept {
  return call_bound(
      [&](const DriverCalls& calls) {
        const CUkernel kernel = find_kernel(calls, function);
        return kernel == nullptr ? static_cast<CUresult>(cudaErrorInvalidDeviceFunction)
                                 : body(calls, kernel);
      },
      caller);
}

}  // namespace

}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

#pragma GCC visibility push(default)
extern "C" {

void** CUDARTAPI __cudaRegisterFatBinary(void* image) {
  return reinterpret_cast<void**>(new (std::nothrow) FatBinary{image, nullptr});
}
void CUDARTAPI __cudaRegisterFatBinaryEnd(void**) {}
void CUDARTAPI __cudaUnregisterFatBinary(void**) {}  // at exit; handles stay valid until the end
char CUDARTAPI __cudaInitModule(void**) { return 1; }

void CUDARTAPI __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int,
                                      uint3*, uint3*, dim3*, dim3*, int*) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  all.functions.push_back({host, name, reinterpret_cast<FatBinary*>(binary), nullptr});
}
void CUDARTAPI __cudaRegisterVar(void** binary, char* host, char*, const char* name, int,
                                 size_t bytes, int, int) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  all.variables.push_back({host, name, reinterpret_cast<FatBinary*>(binary), bytes});
}
void CUDARTAPI __cudaRegisterManagedVar(void** binary, void** host, char*, const char* name, int,
                                        size_t bytes, int, int) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  all.variables.push_back({host, name, reinterpret_cast<FatBinary*>(binary), bytes});
}
void CUDARTAPI __cudaRegisterTexture(void**, const struct textureReference*, const void**,
                                     const char*, int, int, int) {}
void CUDARTAPI __cudaRegisterSurface(void**, const struct surfaceReference*, const void**,
                                     const char*, int, int) {}

unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                               CUstream_st* stream) {
  if (t_configured == kConfigurations) return 1;
  t_configurations[t_configured++] = {grid, block, shared, stream};
  return 0;
}
cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                 void* stream) {
  if (t_configured == 0) return finish(cudaErrorMissingConfiguration);
  const Configuration& top = t_configurations[--t_configured];
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

// CUDA 13's launch path: kernel handles instead of host stubs.
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return call([&](const DriverCalls& calls) {
    if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUkernel found = find_kernel(calls, function);
    *kernel = reinterpret_cast<cudaKernel_t>(found);
    return found == nullptr ? static_cast<CUresult>(cudaErrorInvalidDeviceFunction) : CUDA_SUCCESS;
  });
}
cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                         void** arguments, size_t shared, cudaStream_t stream) {
  return call_bound(
      [&](const DriverCalls& calls) {
        return launch(calls, reinterpret_cast<CUkernel>(kernel), grid, block, arguments, shared,
                      stream);
      },
      "cudaLaunchKernel");
}

}  // extern "C"
#pragma GCC visibility pop

extern "C" {

cudaError_t CUDARTAPI cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                                       void** arguments, size_t shared, cudaStream_t stream) {
  return with_kernel(function, [&](const DriverCalls& calls, CUkernel kernel) {
    return launch(calls, kernel, grid, block, arguments, shared, stream);
  });
}
cudaError_t CUDARTAPI cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                  void** arguments, size_t shared,
                                                  cudaStream_t stream) {
  return with_kernel(function, [&](const DriverCalls& calls, CUkernel kernel) {
    return calls.cuLaunchCooperativeKernel(as_function(kernel), grid.x, grid.y, grid.z, block.x,
                                           block.y, block.z, static_cast<unsigned>(shared), stream,
                                           arguments);
  });
}
cudaError_t CUDARTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                          void** arguments) {
  return with_kernel(function, [&](const DriverCalls& calls, CUkernel kernel) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return launch(calls, kernel, config->gridDim, config->blockDim, arguments,
                  config->dynamicSmemBytes, config->stream);
  });
}
cudaError_t CUDARTAPI cudaGetFuncBySymbol(cudaFunction_t* out, const void* symbol) {
  return with_kernel(symbol, [&](const DriverCalls& calls, CUkernel kernel) {
    return calls.cuKernelGetFunction(out, kernel);
  });
}
cudaError_t CUDARTAPI cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return __cudaGetKernel(kernel, function);
}

cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  return with_kernel(function, [&](const DriverCalls& calls, CUkernel kernel) {
    return out == nullptr ? CUDA_ERROR_INVALID_VALUE : attributes_of(calls, kernel, *out);
  });
}
cudaError_t CUDARTAPI cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute,
                                           int value) {
  return with_kernel(function, [&](const DriverCalls& calls, CUkernel kernel) {
    return calls.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, kernel,
                                      0);
  });
}
cudaError_t CUDARTAPI cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
  return with_kernel(function, [](const DriverCalls&, CUkernel) { return CUDA_SUCCESS; });
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                    const void* function,
                                                                    int block_size,
                                                                    size_t dynamic_shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                dynamic_shared, 0);
}
cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int block_size, size_t dynamic_shared, unsigned int flags) {
  return with_kernel(function, [&](const DriverCalls& calls, CUkernel kernel) {
    return calls.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks, as_function(kernel), block_size, dynamic_shared, flags);
  });
}
cudaError_t CUDARTAPI cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function,
                                                                int blocks, int block_size) {
  return with_kernel(function, [&](const DriverCalls& calls, CUkernel kernel) {
    return calls.cuOccupancyAvailableDynamicSMemPerBlock(bytes, as_function(kernel), blocks,
                                                         block_size);
  });
}
cudaError_t CUDARTAPI cudaOccupancyMaxActiveClusters(int* clusters, const void* function,
                                                     const cudaLaunchConfig_t*) {
  return with_kernel(function, [&](const DriverCalls& calls, CUkernel kernel) {
    return calls.cuOccupancyMaxActiveClusters(clusters, as_function(kernel), nullptr);
  });
}
cudaError_t CUDARTAPI cudaOccupancyMaxPotentialClusterSize(int* size, const void* function,
                                                           const cudaLaunchConfig_t*) {
  return with_kernel(function, [&](const DriverCalls& calls, CUkernel kernel) {
    return calls.cuOccupancyMaxPotentialClusterSize(size, as_function(kernel), nullptr);
  });
}

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*,
                                          void**, unsigned int, cudaLibraryOption*, void**,
                                          unsigned int) {
  return call([&](const DriverCalls& calls) {
    return calls.cuLibraryLoadData(library, code, nullptr, nullptr, 0, nullptr, nullptr, 0);
  });
}
cudaError_t CUDARTAPI cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* path,
                                              cudaJitOption*, void**, unsigned int,
                                              cudaLibraryOption*, void**, unsigned int) {
  return call([&](const DriverCalls& calls) {
    return calls.cuLibraryLoadFromFile(library, path, nullptr, nullptr, 0, nullptr, nullptr, 0);
  });
}
cudaError_t CUDARTAPI cudaLibraryUnload(cudaLibrary_t library) {
  return call([&](const DriverCalls& calls) { return calls.cuLibraryUnload(library); });
}
cudaError_t CUDARTAPI cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library,
                                           const char* name) {
  return call([&](const DriverCalls& calls) {
    CUkernel found = nullptr;
    const CUresult result =
        remember_kernel(calls.cuLibraryGetKernel(&found, library, name), &found);
    if (kernel != nullptr) *kernel = reinterpret_cast<cudaKernel_t>(found);
    return result;
  });
}
cudaError_t CUDARTAPI cudaLibraryGetGlobal(void** address, size_t* bytes, cudaLibrary_t library,
                                           const char* name) {
  return call_bound([&](const DriverCalls& calls) {
    return calls.cuLibraryGetGlobal(reinterpret_cast<CUdeviceptr*>(address), bytes, library, name);
  });
}
cudaError_t CUDARTAPI cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                                      cudaFuncAttribute attribute, int value,
                                                      int device) {
  return call([&](const DriverCalls& calls) {
    return calls.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value,
                                      reinterpret_cast<CUkernel>(kernel), device);
  });
}
#endif

}  // extern "C"
