#include "alloc/live_settings.h"

#include <string>

#include "alloc/devices.h"
#include "shim/fragscope_api.h"

namespace fragscope::alloc {

void take_live_settings() {
  const fragscope_api* const api = fragscope_find_();
  if (!FRAGSCOPE_KNOWS_(api, answer_settings)) return;
  char text[1024];
  const uint32_t number = api->take_settings(text, sizeof text);
  if (number == 0) return;
  const std::string problem = change_settings(text);
  api->answer_settings(number, problem.empty(), problem.c_str());
}

}  // namespace fragscope::alloc
