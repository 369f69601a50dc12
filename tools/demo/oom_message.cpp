#include "tools/demo/oom_message.h"

#include "base/bytes.h"

namespace fragscope::demo {

std::string oom_message(const model::OomFacts& facts, int device) {
  std::string text = "CUDA out of memory. Tried to allocate " + format_size(facts.segment) +
                     ". GPU " + std::to_string(device) + " has a total capacity of " +
                     format_size(facts.device_total) + " of which " +
                     format_size(facts.device_free) + " is free. ";
  if (facts.allowed) text += format_size(*facts.allowed) + " allowed; ";
  text += "Of the allocated memory " + format_size(facts.allocated + facts.private_free) +
          " is allocated by PyTorch, ";
  if (facts.private_free > 0) {
    text += "with " + format_size(facts.private_free) +
            " allocated in private pools (e.g., CUDA Graphs), ";
  }
  text += "and " + format_size(facts.reserved - facts.allocated - facts.private_free) +
          " is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
          "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
          "See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/"
          "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";
  return text;
}

}  // namespace fragscope::demo
