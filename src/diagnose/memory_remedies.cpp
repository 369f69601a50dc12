#include "diagnose/memory_remedies.h"

#include <algorithm>
#include <cstdio>

#include "base/bytes.h"

namespace fragscope::diagnose {
namespace {

class Remedies {
 public:
  explicit Remedies(const Attribution& data) : data_(data) {}

  std::vector<MemoryRemedy> build() {
    const uint64_t activations = of(TensorRole::activations);
    const uint64_t state = of(TensorRole::optimizer_state);
    const uint64_t batch = activations + of(TensorRole::inputs) + of(TensorRole::temporary);
    leak();
    add("batch", batch / 2,
        "half the batch, with two steps of gradient accumulation (half of activations, inputs and "
        "temporaries)");
    add("checkpoint", data_.activations_in_modules,
        "activation checkpointing (torch.utils.checkpoint) of the modules: what their forwards "
        "made is computed again; their outputs stay");
    add("amp", activations / 2,
        "mixed precision (torch.autocast): half of the activations, as far as they are float32");
    add("offload", state, "the optimizer's state in host memory (all of it)");
    add("optimizer_8bit", state / 4 * 3,
        "an 8-bit optimizer (three quarters of the state, if it is float32), or a state sharded "
        "over ranks");
    add("fused", data_.optimizer_temporaries,
        "fused=True, or foreach=False: the temporaries of the optimizer's step");
    add("set_to_none", data_.gradients_of_earlier_steps,
        "zero_grad(set_to_none=True) before the forward pass: gradients of earlier steps are live "
        "at the peak");
    add("workspace", of(TensorRole::workspace),
        "smaller library workspaces (CUBLAS_WORKSPACE_CONFIG)");
    std::stable_sort(list_.begin(), list_.end(),
                     [](const auto& left, const auto& right) { return left.bytes > right.bytes; });
    return std::move(list_);
  }

 private:
  uint64_t of(TensorRole role) const { return data_.roles[static_cast<size_t>(role)].bytes; }

  void add(const char* name, uint64_t bytes, std::string text) {
    if (bytes > 0) list_.push_back({name, bytes, std::move(text)});
  }

  void leak() {
    if (!data_.growth.sure) return;  // a suspicion is no remedy
    add("leak", data_.growth.suspect_bytes,
        "let go of what every step leaves behind (fragscope attribute names the lines): detach() "
        "or item() what is kept for logging");
  }

  const Attribution& data_;
  std::vector<MemoryRemedy> list_;
};

}  // namespace

std::vector<MemoryRemedy> memory_remedies(const Attribution& attribution) {
  return Remedies(attribution).build();
}

std::string remedies_text(const std::vector<MemoryRemedy>& remedies, uint64_t live_bytes) {
  std::string out;
  for (const MemoryRemedy& remedy : remedies) {
    char figure[64];
    const double share = live_bytes == 0 ? 0
                                         : 100.0 * static_cast<double>(remedy.bytes) /
                                               static_cast<double>(live_bytes);
    std::snprintf(figure, sizeof figure, "  at most %10s (%4.1f %%)  ",
                  format_size(remedy.bytes).c_str(), share);
    out += figure + remedy.text + "\n";
  }
  return out;
}

}  // namespace fragscope::diagnose
