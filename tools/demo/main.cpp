// fragscope-demo-train: a program as FragScope's users have them. It knows nothing of FragScope but
// fragscope_api.h, reads PyTorch's own variable for the allocator's settings, and dies of the
// error that PyTorch programs die of.
//
// usage: fragscope-demo-train [--plain]
//   --plain  no caching allocator: cudaMalloc and cudaFree for every tensor
// Exit code: 0 trained, 1 out of memory, 2 a bad argument or setting.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "shim/fragscope_api.h"
#include "tools/demo/cached_tensors.h"
#include "tools/demo/plain_tensors.h"
#include "tools/demo/training_run.h"

namespace {

using fragscope::demo::TensorMemory;

int train(TensorMemory& memory) {
  fragscope::demo::TrainingRun run({}, memory);
  bool ok = run.build();
  if (ok) std::printf("weights and optimizer: %s\n", memory.end_step().c_str());
  for (size_t index = 0; ok && index < fragscope::demo::kLengths.size(); ++index) {
    const auto length = static_cast<unsigned>(fragscope::demo::kLengths[index]);
    char name[48];
    std::snprintf(name, sizeof name, "step %2zu, length %u", index + 1, length);
    fragscope_mark(name);
    ok = run.step(length);
    std::printf("%s: %s\n", name, ok ? memory.end_step().c_str() : "failed");
    std::fflush(stdout);
  }
  if (!ok) std::fprintf(stderr, "OutOfMemoryError: %s\n", memory.failure().c_str());
  return ok ? 0 : 1;
}

std::unique_ptr<TensorMemory> cached_tensors() {
  const char* text = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  auto config = fragscope::model::parse_config(text == nullptr ? "" : text,
                                               *fragscope::model::find_version_profile("").profile);
  if (!config) {
    std::fprintf(stderr, "PYTORCH_CUDA_ALLOC_CONF: %s\n", config.error().text.c_str());
    return nullptr;
  }
  return std::make_unique<fragscope::demo::CachedTensors>(*config);
}

}  // namespace

int main(int argc, char** argv) {
  const bool plain = argc == 2 && std::strcmp(argv[1], "--plain") == 0;
  if (argc > 1 && !plain) {
    std::fprintf(stderr, "usage: %s [--plain]\n", argv[0]);
    return 2;
  }
  if (plain) {
    fragscope::demo::PlainTensors tensors;
    return train(tensors);
  }
  const std::unique_ptr<TensorMemory> tensors = cached_tensors();
  return tensors ? train(*tensors) : 2;
}
