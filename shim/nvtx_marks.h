// The part of NVTX's injection interface that is used: numbers and layouts of nvtxTypes.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::shim::nvtx {

inline constexpr uint32_t kCallbacksTable = 1;  // NVTX_ETID_CALLBACKS
inline constexpr int kModuleCore = 1;
inline constexpr int kModuleCore2 = 5;
inline constexpr int kNoPushPopTracking = -2;

// NVTX_CBID_CORE_*, NVTX_CBID_CORE2_*
enum Core : unsigned {
  kMarkEx = 1,
  kMarkA,
  kMarkW,
  kRangeStartEx,
  kRangeStartA,
  kRangeStartW,
  kRangeEnd,
  kRangePushEx,
  kRangePushA,
  kRangePushW,
  kRangePop,
};
enum Core2 : unsigned {
  kDomainMarkEx = 1,
  kDomainRangeStartEx,
  kDomainRangeEnd,
  kDomainRangePushEx,
  kDomainRangePop,
  kRegisterStringA = 10,
  kRegisterStringW,
  kDomainCreateA,
  kDomainCreateW,
};

// nvtxMessageType_t
inline constexpr int32_t kMessageAscii = 1;
inline constexpr int32_t kMessageUnicode = 2;
inline constexpr int32_t kMessageRegistered = 3;

// nvtxEventAttributes_t
struct Attributes {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;
  int32_t message_type;
  const void* message;
};
static_assert(sizeof(Attributes) == 48 && offsetof(Attributes, message) == 40);

// NvtxExportTableCallbacks
struct CallbackTable {
  size_t size;
  int (*get_module)(int module, void**** table, unsigned* size);
};
using GetExportTable = const void* (*)(uint32_t id);

}  // namespace fragscope::shim::nvtx
