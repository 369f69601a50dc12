// The torch adaptor for the stand-ins of torch.
#include "shim/torch_adaptor/torch_adaptor.h"
#include "shim_fake_torch.h"

namespace {

const fragscope_torch_host* g_host = nullptr;
const fragscope_torch_adaptor kSelf = {FRAGSCOPE_TORCH_ADAPTOR_VERSION, "9.9.0"};

void on_entry(int action, int device, uint64_t address, uint64_t size, uint64_t stream) {
  const fragscope_torch_entry entry = {action, device, address, size, stream, 0, 0, 0};
  g_host->entry(&entry);
}

}  // namespace

extern "C" FAKE_API const fragscope_torch_adaptor* fragscope_torch_adaptor_start(
    const fragscope_torch_host* host) {
  g_host = host;
  fake_attach_tracker(on_entry);
  return &kSelf;
}
