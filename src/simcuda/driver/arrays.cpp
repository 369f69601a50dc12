// Arrays and mipmapped arrays: memory is taken for them and they can be described; nothing can be
// copied to or from them. Assumed, as the vendor documents none of it: an array takes the bytes of
// its texels, without padding.
#include "simcuda/driver/driver_state.h"

using namespace fragscope::simcuda;

namespace {

// 0: a format that arrays of this device cannot have.
unsigned format_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

bool is_valid(const CUDA_ARRAY3D_DESCRIPTOR& about) {
  const bool channels = about.NumChannels == 1 || about.NumChannels == 2 || about.NumChannels == 4;
  return about.Width > 0 && channels && format_bytes(about.Format) != 0 &&
         about.Width <= 1u << 27 && about.Height <= 1u << 17 && about.Depth <= 1u << 14;
}

CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR& about, unsigned level) {
  const auto side = [level](size_t full) {
    return full == 0 ? 0 : std::max<size_t>(full >> level, 1);
  };
  CUDA_ARRAY3D_DESCRIPTOR smaller = about;
  smaller.Width = side(about.Width);
  smaller.Height = side(about.Height);
  if ((about.Flags & CUDA_ARRAY3D_LAYERED) == 0) smaller.Depth = side(about.Depth);
  return smaller;
}

uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& about) {
  return std::max<uint64_t>(about.Width, 1) * std::max<uint64_t>(about.Height, 1) *
         std::max<uint64_t>(about.Depth, 1) * about.NumChannels * format_bytes(about.Format);
}

// The memory of one array or of all levels of a mipmapped one.
CUresult take_memory(DriverState& state, CUctx_st& context, const CUDA_ARRAY3D_DESCRIPTOR& about,
                     uint64_t bytes, uint64_t& address) {
  if (!is_valid(about)) return CUDA_ERROR_INVALID_VALUE;
  if ((about.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;  // and the attributes say so
  }
  const CUresult refused = refuse_in_capture(state);
  if (refused != CUDA_SUCCESS) return refused;
  const auto taken = context.device->memory.allocate(bytes);
  if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
  address = *taken;
  return CUDA_SUCCESS;
}

CUresult create(const char* call, CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& about) {
  const uint64_t bytes = bytes_of(about);
  const CUresult result = with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto array = std::make_unique<CUarray_st>();
    const CUresult taken = take_memory(state, context, about, bytes, array->address);
    if (taken != CUDA_SUCCESS) return taken;
    array->context = &context;
    array->about = about;
    *out = array.get();
    state.arrays.emplace(*out, std::move(array));
    return CUDA_SUCCESS;
  });
  write_books(call, result == CUDA_SUCCESS ? reinterpret_cast<uint64_t>(*out) : 0, bytes, result);
  return result;
}

// A level of a mipmapped array is an array too, but not one to destroy.
CUarray_st* find_array(DriverState& state, CUarray handle) {
  const auto found = state.arrays.find(handle);
  if (found != state.arrays.end()) return found->second.get();
  for (const auto& [mipmap, owner] : state.mipmaps) {
    for (const auto& level : owner->levels) {
      if (level.get() == handle) return level.get();
    }
  }
  return nullptr;
}

CUresult describe(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return with_state([&](DriverState& state) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUarray_st* array = find_array(state, handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *out = array->about;
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* about) {
  if (about == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create("cuArrayCreate_v2", out,
                {about->Width, about->Height, 0, about->Format, about->NumChannels, 0});
}
CUresult CUDAAPI cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* about) {
  if (about == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create("cuArray3DCreate_v2", out, *about);
}

CUresult CUDAAPI cuArrayDestroy(CUarray handle) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto found = state.arrays.find(handle);
    if (found == state.arrays.end()) return CUDA_ERROR_INVALID_HANDLE;
    found->second->context->device->memory.release(found->second->address);
    state.arrays.erase(found);
    return CUDA_SUCCESS;
  });
  write_books("cuArrayDestroy", reinterpret_cast<uint64_t>(handle), 0, result);
  return result;
}

CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR about{};
  const CUresult result = describe(&about, handle);
  *out = {about.Width, about.Height, about.Format, about.NumChannels};
  return result;
}
CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return describe(out, handle);
}

CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* about,
                                        unsigned int levels) {
  if (about == nullptr || levels == 0 || levels > 32) return CUDA_ERROR_INVALID_VALUE;
  uint64_t bytes = 0;
  for (unsigned level = 0; level < levels; ++level) bytes += bytes_of(level_of(*about, level));
  const CUresult result = with_context([&](DriverState& state, CUctx_st& context) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_unique<CUmipmappedArray_st>();
    const CUresult taken = take_memory(state, context, *about, bytes, made->address);
    if (taken != CUDA_SUCCESS) return taken;
    made->context = &context;
    for (unsigned level = 0; level < levels; ++level) {
      auto array = std::make_unique<CUarray_st>();
      array->context = &context;
      array->about = level_of(*about, level);
      made->levels.push_back(std::move(array));
    }
    *out = made.get();
    state.mipmaps.emplace(*out, std::move(made));
    return CUDA_SUCCESS;
  });
  write_books("cuMipmappedArrayCreate",
              result == CUDA_SUCCESS ? reinterpret_cast<uint64_t>(*out) : 0, bytes, result);
  return result;
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  const CUresult result = with_state([&](DriverState& state) {
    const auto found = state.mipmaps.find(handle);
    if (found == state.mipmaps.end()) return CUDA_ERROR_INVALID_HANDLE;
    found->second->context->device->memory.release(found->second->address);
    state.mipmaps.erase(found);
    return CUDA_SUCCESS;
  });
  write_books("cuMipmappedArrayDestroy", reinterpret_cast<uint64_t>(handle), 0, result);
  return result;
}

CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle,
                                          unsigned int level) {
  return with_state([&](DriverState& state) {
    const auto found = state.mipmaps.find(handle);
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (found == state.mipmaps.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (level >= found->second->levels.size()) return CUDA_ERROR_INVALID_VALUE;
    *out = found->second->levels[level].get();
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
