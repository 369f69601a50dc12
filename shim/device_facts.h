// Properties device.<n>.name, .total_bytes, .simulated: asked of the driver once per device, when
// the first event of that device is logged (then the driver is initialised).
#pragma once

#include "shim/session.h"

namespace fragscope::shim {

void describe_device(Session& session, int32_t device) noexcept;

}  // namespace fragscope::shim
