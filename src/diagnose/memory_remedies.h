// What would lower the peak of the live bytes, most bytes first: the remedies that no allocator
// setting replaces, from an attribution of the peak.
//
// `bytes` is what the peak could lose at most, by stated arithmetic on the roles; remedies overlap,
// so their bytes do not add up. A remedy without bytes to win is left out.
//   leak         all that the growth suspects left behind
//   batch        half of activations, inputs and temporaries: half the batch, twice accumulated
//   checkpoint   the activations that modules' forwards made (their outputs stay, so it is less)
//   amp          half of the activations, if they are float32
//   optimizer_8bit  three quarters of the optimizer's state; `offload`: all of it
//   fused        the temporaries of the optimizer's step
//   set_to_none  gradients of an earlier step that are live at the peak
//   workspace    library workspaces (CUBLAS_WORKSPACE_CONFIG)
//
// Units: bytes. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/attribution.h"

namespace fragscope::diagnose {

struct MemoryRemedy {
  std::string name;    // as above
  uint64_t bytes = 0;  // at most
  std::string text;    // a sentence: what to do, and how the bytes were reckoned
};

std::vector<MemoryRemedy> memory_remedies(const Attribution& attribution);

// One line each, most bytes first.
std::string remedies_text(const std::vector<MemoryRemedy>& remedies, uint64_t live_bytes);

}  // namespace fragscope::diagnose
