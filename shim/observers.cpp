#include "shim/observers.h"

#include "shim/recorder.h"

namespace fragscope::shim {

void Observer::context_destroy_current() noexcept {
  event_.kind = EventKind::context_destroy;
  event_.device = current_device();
}

void Observer::context_destroy(void* context) noexcept {
  release(EventKind::context_destroy, value(context));
  if (current_context() == context) event_.device = current_device();
}

}  // namespace fragscope::shim
