#include "shim/observers.h"

#include "shim/recorder.h"

namespace fragscope::shim {

void Observer::context_destroy_current() noexcept {
  event_.kind = EventKind::context_destroy;
  if (Session* const session = current_session()) event_.device = current_device(*session);
}

void Observer::context_destroy(void* context) noexcept {
  release(EventKind::context_destroy, value(context));
  Session* const session = current_session();
  if (session != nullptr && current_context(*session) == context) {
    event_.device = current_device(*session);
  }
}

}  // namespace fragscope::shim
