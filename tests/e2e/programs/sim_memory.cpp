// Memory of a simulated device of 1 GiB, context bytes 0: capacity, errors, copies, kinds of
// pointers.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "sim_check.h"

namespace {

constexpr size_t kMiB = 1u << 20;

size_t free_bytes() {
  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  CHECK(total == 1024 * kMiB);
  return free;
}

void capacity_is_exact() {
  CHECK(free_bytes() == 1024 * kMiB);
  std::vector<void*> blocks;
  void* block = nullptr;
  while (cudaMalloc(&block, 2 * kMiB) == cudaSuccess) blocks.push_back(block);
  CHECK(blocks.size() == 512);
  CHECK(free_bytes() == 0);
  CHECK(block == nullptr);
  CHECK_CODE(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  CHECK_CODE(cudaGetLastError(), cudaErrorMemoryAllocation);
  OK(cudaGetLastError());
  for (void* each : blocks) OK(cudaFree(each));
  CHECK(free_bytes() == 1024 * kMiB);
}

void small_allocations_share_a_page() {
  void* first = nullptr;
  void* second = nullptr;
  OK(cudaMalloc(&first, 1));
  OK(cudaMalloc(&second, 1));
  CHECK(static_cast<char*>(second) - static_cast<char*>(first) == 512);
  CHECK(free_bytes() == 1022 * kMiB);
  OK(cudaFree(first));
  OK(cudaFree(second));
  CHECK(free_bytes() == 1024 * kMiB);
}

void wrong_calls_are_refused() {
  void* block = nullptr;
  CHECK_CODE(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);
  OK(cudaMalloc(&block, 0));
  CHECK(block == nullptr);
  OK(cudaFree(nullptr));
  OK(cudaMalloc(&block, 4 * kMiB));
  CHECK_CODE(cudaFree(static_cast<char*>(block) + 512), cudaErrorInvalidValue);
  OK(cudaFree(block));
  CHECK_CODE(cudaFree(block), cudaErrorInvalidValue);
  int value = 0;
  CHECK_CODE(cudaMemcpy(block, &value, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  CHECK_CODE(cudaFree(&value), cudaErrorInvalidValue);
  cudaGetLastError();
}

void copies_last_until_a_launch() {
  const void* kernel = register_kernel("touch");
  int* device = nullptr;
  OK(cudaMalloc(reinterpret_cast<void**>(&device), 4 * kMiB));
  const int values[4] = {1, 2, 3, 4};
  int back[4] = {};
  OK(cudaMemcpy(device, values, sizeof values, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(device + 100, device, sizeof values, cudaMemcpyDeviceToDevice));
  OK(cudaMemcpy(back, device + 100, sizeof back, cudaMemcpyDefault));
  CHECK(std::memcmp(back, values, sizeof back) == 0);
  OK(cudaMemset(device, 0xff, sizeof values));
  OK(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost));
  CHECK(back[3] == -1);
  OK(cudaLaunchKernel(kernel, dim3(1, 1, 1), dim3(32, 1, 1), nullptr, 0, nullptr));
  OK(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost));
  CHECK(back[3] == 0);
  CHECK_CODE(cudaLaunchKernel(kernel, dim3(0, 1, 1), dim3(32, 1, 1), nullptr, 0, nullptr),
             cudaErrorInvalidConfiguration);
  CHECK_CODE(cudaLaunchKernel(&back, dim3(1, 1, 1), dim3(32, 1, 1), nullptr, 0, nullptr),
             cudaErrorInvalidDeviceFunction);
  cudaGetLastError();
  std::vector<int> large(kMiB, 7);
  OK(cudaMemcpy(device, large.data(), large.size() * 4, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(large.data(), device, large.size() * 4, cudaMemcpyDeviceToHost));
  CHECK(large[0] == 0);  // large transfers are not kept
  OK(cudaFree(device));
}

void strided_copies_are_exact() {
  char* device = nullptr;
  size_t pitch = 0;
  OK(cudaMallocPitch(reinterpret_cast<void**>(&device), &pitch, 10, 4));
  CHECK(pitch == 512);
  char from[40], to[40] = {};
  for (int i = 0; i < 40; ++i) from[i] = static_cast<char>(i);
  OK(cudaMemcpy2D(device, pitch, from, 10, 10, 4, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2DAsync(to, 10, device, pitch, 10, 4, cudaMemcpyDeviceToHost, nullptr));
  CHECK(std::memcmp(from, to, sizeof to) == 0);
  OK(cudaFree(device));
}

void host_memory_is_real() {
  char* pinned = nullptr;
  OK(cudaMallocHost(reinterpret_cast<void**>(&pinned), 3 * kMiB));
  std::memset(pinned, 5, 3 * kMiB);
  CHECK(free_bytes() == 1024 * kMiB);
  std::vector<char> plain(3 * kMiB);
  OK(cudaMemcpy(plain.data(), pinned, plain.size(), cudaMemcpyHostToHost));
  CHECK(plain.back() == 5);
  cudaPointerAttributes about{};
  OK(cudaPointerGetAttributes(&about, pinned + 100));
  CHECK(about.type == cudaMemoryTypeHost);
  CHECK(about.devicePointer == pinned + 100);
  OK(cudaPointerGetAttributes(&about, plain.data()));
  CHECK(about.type == cudaMemoryTypeUnregistered);
  OK(cudaHostRegister(plain.data(), plain.size(), 0));
  CHECK_CODE(cudaHostRegister(plain.data() + 10, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
  OK(cudaHostUnregister(plain.data()));
  CHECK_CODE(cudaHostUnregister(plain.data()), cudaErrorHostMemoryNotRegistered);
  CHECK_CODE(cudaFreeHost(plain.data()), cudaErrorInvalidValue);
  cudaGetLastError();
  OK(cudaFreeHost(pinned));
}

void managed_memory_is_host_memory() {
  int* managed = nullptr;
  OK(cudaMallocManaged(reinterpret_cast<void**>(&managed), 1000, cudaMemAttachGlobal));
  managed[7] = 9;
  int back = 0;
  OK(cudaMemcpy(&back, managed + 7, 4, cudaMemcpyDeviceToHost));
  CHECK(back == 9);
  cudaPointerAttributes about{};
  OK(cudaPointerGetAttributes(&about, managed));
  CHECK(about.type == cudaMemoryTypeManaged);
  OK(cudaFree(managed));
}

void variables_have_an_address() {
  static int image = 0, variable = 0;
  __cudaRegisterVar(__cudaRegisterFatBinary(&image), reinterpret_cast<char*>(&variable), nullptr,
                    "variable", 0, sizeof variable, 0, 1);
  const int value = 3;
  int back = 0;
  OK(cudaMemcpyToSymbol(&variable, &value, 4, 0, cudaMemcpyHostToDevice));
  OK(cudaMemcpyFromSymbol(&back, &variable, 4, 0, cudaMemcpyDeviceToHost));
  CHECK(back == 3);
  CHECK_CODE(cudaMemcpyToSymbol(&variable, &value, 4, 1, cudaMemcpyHostToDevice),
             cudaErrorInvalidValue);
  CHECK_CODE(cudaMemcpyToSymbol(&back, &value, 4, 0, cudaMemcpyHostToDevice),
             cudaErrorInvalidSymbol);
  CHECK(free_bytes() == 1024 * kMiB);
}

void reset_ends_everything() {
  void* block = nullptr;
  OK(cudaMalloc(&block, 100 * kMiB));
  OK(cudaDeviceReset());
  CHECK(free_bytes() == 1024 * kMiB);
  CHECK_CODE(cudaFree(block), cudaErrorInvalidValue);
}

}  // namespace

int main() {
  capacity_is_exact();
  small_allocations_share_a_page();
  wrong_calls_are_refused();
  copies_last_until_a_launch();
  strided_copies_are_exact();
  host_memory_is_real();
  managed_memory_is_host_memory();
  variables_have_an_address();
  reset_ends_everything();
  return g_failures;
}
