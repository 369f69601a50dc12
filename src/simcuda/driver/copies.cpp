// Copies and fills. Host to host is exact; what reaches a device goes through its overlay (small
// values until the next launch, zeros else); a captured operation is a node and is not executed.
#include <cstring>
#include <optional>

#include "simcuda/answer_names.h"
#include "simcuda/driver/driver_state.h"

namespace fragscope::simcuda {

namespace {

constexpr uint64_t kTickPerOperation = 1;

// What the host reads: stored values, else the answer to the last kernel (answers.h), else zeros.
void read_device(DriverState& state, Device& device, uint64_t from, void* to, size_t bytes) {
  if (device.overlay.read(from, to, bytes)) return;
  constexpr size_t kLargestScalar = 8;
  const AnswerRule* rule = device.answers.read(to, bytes);
  const char* unknown = bytes > kLargestScalar ? kZerosAnswer : kZeroAnswer;
  state.ledger->note(Ledger::Kind::kAnswer, rule != nullptr ? rule->id.c_str() : unknown, bytes);
}

// One contiguous run of bytes. The caller holds the lock.
void copy_run(DriverState& state, uint64_t to, uint64_t from, size_t bytes) {
  Device* target = device_of_address(state, to);
  Device* source = device_of_address(state, from);
  if (target == nullptr && source == nullptr) {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  } else if (source == nullptr) {
    target->overlay.write(to, reinterpret_cast<const void*>(from), bytes);
    target->answers.written();
  } else if (target == nullptr) {
    read_device(state, *source, from, reinterpret_cast<void*>(to), bytes);
  } else if (target == source) {
    if (!target->overlay.copy(to, from, bytes)) target->answers.copied(bytes);
  } else if (bytes > Overlay::kLargestWrite) {
    target->overlay.erase(to, bytes);
  } else {
    std::vector<std::byte> between(bytes);
    if (source->overlay.read(from, between.data(), bytes)) {
      target->overlay.write(to, between.data(), bytes);
    } else {
      target->overlay.erase(to, bytes);
    }
  }
}

constexpr uint64_t kNullPage = 4096;  // never mapped: null, and offsets from it

bool is_usable(DriverState& state, uint64_t address, uint64_t bytes) {
  return address >= kNullPage && bytes <= UINT64_MAX - address &&
         (!is_device_address(address) || is_live_device_range(state, address, bytes));
}

// rows - 1 times pitch, slices - 1 times slice, and the last row; nullopt: beyond 2^64.
std::optional<uint64_t> extent(uint64_t slices, uint64_t slice, uint64_t rows, uint64_t pitch,
                               uint64_t width) {
  uint64_t deep = 0, high = 0, bytes = 0;
  const bool overflows = __builtin_mul_overflow(slices - 1, slice, &deep) ||
                         __builtin_mul_overflow(rows - 1, pitch, &high) ||
                         __builtin_add_overflow(deep, high, &bytes) ||
                         __builtin_add_overflow(bytes, width, &bytes);
  return overflows ? std::nullopt : std::optional<uint64_t>(bytes);
}

// A strided box: `rows` rows of `width` bytes, `slices` of them.
struct Box {
  uint64_t to, from;
  size_t to_pitch, from_pitch;
  size_t to_slice, from_slice;
  size_t width, rows, slices;
};

CUresult copy_box(CUstream handle, bool asynchronous, const Box& box) {
  if (!asynchronous) await_stream(handle);
  return with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    const CUstream stream = find_stream(state, &context, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (box.width == 0 || box.rows == 0 || box.slices == 0) return CUDA_SUCCESS;
    const auto to_bytes = extent(box.slices, box.to_slice, box.rows, box.to_pitch, box.width);
    const auto from_bytes = extent(box.slices, box.from_slice, box.rows, box.from_pitch, box.width);
    if (!to_bytes || !from_bytes || !is_usable(state, box.to, *to_bytes) ||
        !is_usable(state, box.from, *from_bytes) ||
        (box.rows > 1 && (box.to_pitch < box.width || box.from_pitch < box.width))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!asynchronous) {
      const CUresult refused = refuse_in_capture(state);
      if (refused != CUDA_SUCCESS) return refused;
    } else if (capture_node(state, stream, CU_GRAPH_NODE_TYPE_MEMCPY)) {
      return CUDA_SUCCESS;
    }
    for (size_t slice = 0; slice < box.slices; ++slice) {
      for (size_t row = 0; row < box.rows; ++row) {
        copy_run(state, box.to + slice * box.to_slice + row * box.to_pitch,
                 box.from + slice * box.from_slice + row * box.from_pitch, box.width);
      }
    }
    context.device->tick += kTickPerOperation;
    report_copy(state, *stream, box.to, box.from, box.width * box.rows * box.slices, asynchronous);
    if (!asynchronous) complete_stream(stream);
    return CUDA_SUCCESS;
  });
}

CUresult copy_linear(CUstream stream, bool asynchronous, uint64_t to, uint64_t from, size_t bytes,
                     const char* caller = __builtin_FUNCTION()) {
  return traced(caller, [&] {
    return copy_box(stream, asynchronous, {to, from, bytes, bytes, bytes, bytes, bytes, 1, 1});
  });
}

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

template <typename Copy>
bool names_array(const Copy& copy) {
  return copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY;
}

// 0: null, or neither host nor device memory.
template <typename Copy>
uint64_t start(const Copy& copy, bool source) {
  const CUmemorytype type = source ? copy.srcMemoryType : copy.dstMemoryType;
  if (type == CU_MEMORYTYPE_HOST) return source ? number(copy.srcHost) : number(copy.dstHost);
  if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) return 0;
  return source ? copy.srcDevice : copy.dstDevice;
}

// Null stays null wherever in it a copy begins.
uint64_t within(uint64_t base, uint64_t offset) { return base == 0 ? 0 : base + offset; }

CUresult copy_2d(CUstream stream, bool asynchronous, const CUDA_MEMCPY2D* copy,
                 const char* caller = __builtin_FUNCTION()) {
  ApiCall call(&g_activity_tap, ApiDomain::kDriver, caller);
  if (copy == nullptr) return call.ends_with(CUDA_ERROR_INVALID_VALUE);
  const size_t from_pitch = copy->srcPitch != 0 ? copy->srcPitch : copy->WidthInBytes;
  const size_t to_pitch = copy->dstPitch != 0 ? copy->dstPitch : copy->WidthInBytes;
  if (names_array(*copy)) return call.ends_with(unsupported_call("cuMemcpy2D of an array"));
  const uint64_t from = start(*copy, true);
  const uint64_t to = start(*copy, false);
  return call.ends_with(
      copy_box(stream, asynchronous,
               {within(to, copy->dstY * to_pitch + copy->dstXInBytes),
                within(from, copy->srcY * from_pitch + copy->srcXInBytes), to_pitch, from_pitch, 0,
                0, copy->WidthInBytes, copy->Height, 1}));
}

CUresult copy_3d(CUstream stream, bool asynchronous, const CUDA_MEMCPY3D* copy,
                 const char* caller = __builtin_FUNCTION()) {
  ApiCall call(&g_activity_tap, ApiDomain::kDriver, caller);
  if (copy == nullptr) return call.ends_with(CUDA_ERROR_INVALID_VALUE);
  const size_t from_pitch = copy->srcPitch != 0 ? copy->srcPitch : copy->WidthInBytes;
  const size_t to_pitch = copy->dstPitch != 0 ? copy->dstPitch : copy->WidthInBytes;
  const size_t from_slice = from_pitch * (copy->srcHeight != 0 ? copy->srcHeight : copy->Height);
  const size_t to_slice = to_pitch * (copy->dstHeight != 0 ? copy->dstHeight : copy->Height);
  if (names_array(*copy)) return call.ends_with(unsupported_call("cuMemcpy3D of an array"));
  const uint64_t from = start(*copy, true);
  const uint64_t to = start(*copy, false);
  return call.ends_with(copy_box(
      stream, asynchronous,
      {within(to, copy->dstZ * to_slice + copy->dstY * to_pitch + copy->dstXInBytes),
       within(from, copy->srcZ * from_slice + copy->srcY * from_pitch + copy->srcXInBytes),
       to_pitch, from_pitch, to_slice, from_slice, copy->WidthInBytes, copy->Height, copy->Depth}));
}

// Device memory, or host memory that CUDA knows.
bool is_fillable(DriverState& state, uint64_t address, uint64_t bytes) {
  if (is_device_address(address)) return is_live_device_range(state, address, bytes);
  const auto in = [&](const auto& blocks) {
    const auto block = block_around(blocks, address);
    return block != blocks.end() && bytes <= block->second.bytes - (address - block->first);
  };
  return in(state.host_blocks) || in(state.managed_blocks);
}

CUresult fill_box(CUstream handle, bool asynchronous, CUdeviceptr address, size_t pitch,
                  unsigned value, size_t value_bytes, size_t width, size_t rows) {
  if (!asynchronous) await_stream(handle);
  return with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    const CUstream stream = find_stream(state, &context, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (width == 0 || rows == 0) return CUDA_SUCCESS;
    uint64_t row_bytes = 0;
    if (__builtin_mul_overflow(width, value_bytes, &row_bytes)) return CUDA_ERROR_INVALID_VALUE;
    const auto bytes = extent(1, 0, rows, pitch, row_bytes);
    const bool aligned = address % value_bytes == 0 && (rows == 1 || pitch % value_bytes == 0);
    if (!bytes || !aligned || (rows > 1 && pitch < row_bytes) ||
        !is_fillable(state, address, *bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (capture_node(state, stream, CU_GRAPH_NODE_TYPE_MEMSET)) return CUDA_SUCCESS;
    Device* device = device_of_address(state, address);
    for (size_t row = 0; row < rows; ++row) {
      const uint64_t at = address + row * pitch;
      if (device != nullptr) {
        device->overlay.fill(at, value, value_bytes, width);
        device->answers.written();
        continue;
      }
      for (size_t i = 0; i < width; ++i) {
        std::memcpy(reinterpret_cast<void*>(at + i * value_bytes), &value, value_bytes);
      }
    }
    context.device->tick += kTickPerOperation;
    report_fill(state, *stream, address, row_bytes * rows, value, asynchronous);
    if (!asynchronous) complete_stream(stream);
    return CUDA_SUCCESS;
  });
}

CUresult fill(CUstream stream, bool asynchronous, CUdeviceptr address, size_t pitch, unsigned value,
              size_t value_bytes, size_t width, size_t rows,
              const char* caller = __builtin_FUNCTION()) {
  return traced(caller, [&] {
    return fill_box(stream, asynchronous, address, pitch, value, value_bytes, width, rows);
  });
}

}  // namespace

}  // namespace fragscope::simcuda

using namespace fragscope::simcuda;

extern "C" {

CUresult CUDAAPI cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_linear(nullptr, false, to, from, bytes);
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_linear(stream, true, to, from, bytes);
}
CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_linear(nullptr, false, to, number(from), bytes);
}
CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                      CUstream stream) {
  return copy_linear(stream, true, to, number(from), bytes);
}
CUresult CUDAAPI cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy_linear(nullptr, false, number(to), from, bytes);
}
CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_linear(stream, true, number(to), from, bytes);
}
CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_linear(nullptr, false, to, from, bytes);
}
CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                      CUstream stream) {
  return copy_linear(stream, true, to, from, bytes);
}
CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                              size_t bytes) {
  return copy_linear(nullptr, false, to, from, bytes);
}
CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                                   size_t bytes, CUstream stream) {
  return copy_linear(stream, true, to, from, bytes);
}
CUresult CUDAAPI cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return copy_2d(nullptr, false, copy); }
CUresult CUDAAPI cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  return copy_2d(nullptr, false, copy);
}
CUresult CUDAAPI cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy_2d(stream, true, copy);
}
CUresult CUDAAPI cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return copy_3d(nullptr, false, copy); }
CUresult CUDAAPI cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy_3d(stream, true, copy);
}

CUresult CUDAAPI cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t count) {
  return fill(nullptr, false, address, 0, value, 1, count, 1);
}
CUresult CUDAAPI cuMemsetD16_v2(CUdeviceptr address, unsigned short value, size_t count) {
  return fill(nullptr, false, address, 0, value, 2, count, 1);
}
CUresult CUDAAPI cuMemsetD32_v2(CUdeviceptr address, unsigned int value, size_t count) {
  return fill(nullptr, false, address, 0, value, 4, count, 1);
}
CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count,
                                 CUstream stream) {
  return fill(stream, true, address, 0, value, 1, count, 1);
}
CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count,
                                  CUstream stream) {
  return fill(stream, true, address, 0, value, 2, count, 1);
}
CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count,
                                  CUstream stream) {
  return fill(stream, true, address, 0, value, 4, count, 1);
}
CUresult CUDAAPI cuMemsetD2D8_v2(CUdeviceptr address, size_t pitch, unsigned char value,
                                 size_t width, size_t rows) {
  return fill(nullptr, false, address, pitch, value, 1, width, rows);
}
CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char value,
                                   size_t width, size_t rows, CUstream stream) {
  return fill(stream, true, address, pitch, value, 1, width, rows);
}

}  // extern "C"
