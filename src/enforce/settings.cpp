#include "enforce/settings.h"

#include <string>

namespace fragscope::enforce {

fragscope::Result<model::AllocatorConfig> read_settings(std::string_view text,
                                                        const model::VersionProfile& profile,
                                                        const model::AllocatorConfig& previous) {
  auto config = model::parse_config(text, profile, previous);
  const std::string quoted = "'" + std::string(text) + "'";
  if (!config) {
    return Error{ErrorCode::kInvalidArgument,
                 "settings " + quoted + " are not accepted: " + config.error().text};
  }
  if (config->expandable_segments) {
    return Error{ErrorCode::kInvalidArgument,
                 "settings " + quoted +
                     " are not served: segments come whole from cudaMalloc; leave "
                     "expandable_segments out or use PyTorch's own allocator"};
  }
  if (config->backend != "native") {
    return Error{ErrorCode::kInvalidArgument, "settings " + quoted + " are not served: backend " +
                                                  config->backend + " is CUDA's own allocator"};
  }
  return config;
}

}  // namespace fragscope::enforce
