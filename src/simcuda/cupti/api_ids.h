// The numbers that CUPTI gives to the functions of the driver and the runtime API.
#pragma once

#include <cstdint>

#include "simcuda/activity.h"

namespace fragscope::simcuda::cupti {

inline constexpr uint32_t kMostApiIds = 1024;

// Of an exported function ("cudaMalloc", "cuMemAlloc_v2"); 0: CUPTI does not trace it.
uint32_t api_id(ApiDomain domain, const char* function);
// As CUPTI spells it ("cudaMalloc_v3020"), for the life of the process; null: no such number.
const char* api_name(ApiDomain domain, uint32_t id);

}  // namespace fragscope::simcuda::cupti
