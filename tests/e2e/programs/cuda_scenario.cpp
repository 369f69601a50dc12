// Plays one scenario of tests/scenarios/scenarios.ini: PyTorch's caching allocator (the model of
// it) over cudaMalloc, with its blocks published through fragscope_api.h. The steps are one
// argument,
// `;` between them; README.md beside the table lists them.
//
// argv: SETTINGS (PyTorch's grammar, may be empty) STEPS
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "model/caching_allocator.h"
#include "shim/fragscope_api.h"
#include "tools/demo/cached_tensors.h"

namespace {

using namespace fragscope;

[[noreturn]] void usage(const std::string& step) {
  std::fprintf(stderr, "cuda_scenario: cannot do '%s'\n", step.c_str());
  _exit(2);
}

uint64_t mebibytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0') usage(text);
  return static_cast<uint64_t>(number * (1 << 20));
}

uint64_t stream_of(const std::string& word) {
  if (word.size() < 2 || word[0] != 's') usage(word);
  return std::stoull(word.substr(1));
}

class Scenario final : private model::TraceObserver {
 public:
  explicit Scenario(const std::string& settings)
      : profile_(*model::find_version_profile("").profile),
        allocator_(model::parse_config(settings, profile_).value(), profile_, segments_) {
    allocator_.set_observer(this);
  }

  void run(const std::vector<std::string>& steps) {
    for (size_t i = 0; i < steps.size(); ++i) {
      std::istringstream words(steps[i]);
      std::string first;
      words >> first;
      if (first == "repeat") {
        size_t count = 0;
        words >> count;
        const size_t end = end_of_loop(steps, i);
        const std::vector<std::string> body(steps.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                            steps.begin() + static_cast<std::ptrdiff_t>(end));
        for (size_t turn = 0; turn < count; ++turn) run(body);
        i = end;
      } else {
        step(steps[i]);
      }
    }
  }

 private:
  static size_t end_of_loop(const std::vector<std::string>& steps, size_t start) {
    size_t depth = 0;
    for (size_t i = start; i < steps.size(); ++i) {
      if (steps[i].rfind("repeat", 0) == 0) ++depth;
      if (steps[i] == "end" && --depth == 0) return i;
    }
    usage("repeat without end");
  }

  void step(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    words.resize(5);
    const std::string& verb = words[0];
    if (verb == "alloc") return allocate(words[1], mebibytes(words[2]), words[3]);
    if (verb == "keep") return keep(words[1], mebibytes(words[2]));
    if (verb == "comb") return comb(std::stoul(words[1]), mebibytes(words[2]));
    if (verb == "free") return release(words[1]);
    if (verb == "record") return record(words[1], stream_of(words[2]));
    if (verb == "mark") return fragscope_mark(words[1].c_str());
    if (verb == "work") return allocator_.work(stream_of(words[1]));
    if (verb == "capture") return capture(words[1]);
    if (verb == "fraction") return fraction(std::stod(words[1]));
    if (verb == "outside") return outside(mebibytes(words[1]));
    if (verb == "pinned") return pinned(mebibytes(words[1]));
    if (verb == "empty_cache") return static_cast<void>(allocator_.empty_cache());
    if (verb == "other") return other_process(mebibytes(words[1]));
    usage(text);
  }

  // Places with call stacks of their own: what a leak and weights are told apart by.
  __attribute__((noinline)) void keep(const std::string& place, uint64_t bytes) {
    if (place == "weights") return weights(bytes);
    if (place == "losses") return losses(bytes);
    if (place == "cache") return cache(bytes);
    usage(place);
  }
  __attribute__((noinline)) void weights(uint64_t bytes) { take("", bytes, 0); }
  __attribute__((noinline)) void losses(uint64_t bytes) { take("", bytes, 0); }
  __attribute__((noinline)) void cache(uint64_t bytes) { take("", bytes, 0); }

  __attribute__((noinline)) void allocate(const std::string& name, uint64_t bytes,
                                          const std::string& stream) {
    take(name, bytes, stream.empty() ? 0 : stream_of(stream));
  }

  void take(const std::string& name, uint64_t bytes, uint64_t stream) {
    const model::MallocResult result = allocator_.malloc(bytes, stream);
    if (!result.ok()) {
      std::printf("refused %llu\n", static_cast<unsigned long long>(bytes));
      std::fflush(stdout);
      return;
    }
    const model::DeviceStats& stats = allocator_.stats();
    fragscope_block_alloc(0, stream, result.address, result.block_size, bytes,
                          static_cast<uint64_t>(stats.allocated_bytes.all.current),
                          static_cast<uint64_t>(stats.reserved_bytes.all.current));
    if (!name.empty()) blocks_[name] = result.address;
  }

  void comb(size_t count, uint64_t bytes) {
    for (size_t i = 0; i < count; ++i) take("comb" + std::to_string(i), bytes, 0);
    for (size_t i = 0; i < count; i += 2) release("comb" + std::to_string(i));
  }

  void release(const std::string& name) {
    const auto block = blocks_.find(name);
    if (block == blocks_.end()) return;  // it was refused
    allocator_.free(block->second);
    blocks_.erase(block);
  }

  void record(const std::string& name, uint64_t stream) {
    if (!allocator_.record_stream(blocks_.at(name), stream)) usage("record " + name);
  }
  void capture(const std::string& what) {
    if (what != "begin" && what != "end") usage("capture " + what);
    if (!(what == "begin" ? allocator_.begin_capture() : allocator_.end_capture())) usage(what);
  }
  void fraction(double share) {
    if (!allocator_.set_memory_fraction(share)) usage("fraction");
  }

  static void outside(uint64_t bytes) {
    void* address = nullptr;
    if (cudaMalloc(&address, bytes) != cudaSuccess) std::puts("refused outside");
  }
  static void pinned(uint64_t bytes) {
    void* address = nullptr;
    if (cudaMallocHost(&address, bytes) != cudaSuccess) std::puts("refused pinned");
  }

  // Another process takes memory of the device and keeps it until this one ends.
  static void other_process(uint64_t bytes) {
    int ready[2];
    int hold[2];
    if (pipe(ready) != 0 || pipe(hold) != 0) usage("other");
    if (fork() == 0) {
      close(hold[1]);
      setenv("FRAGSCOPE_DISABLE", "1", 1);
      void* address = nullptr;
      char answer = cudaMalloc(&address, bytes) == cudaSuccess ? 'y' : 'n';
      if (write(ready[1], &answer, 1) != 1) _exit(1);
      if (read(hold[0], &answer, 1) != 0) _exit(1);
      _exit(0);
    }
    close(hold[0]);
    char answer = 'n';
    if (read(ready[0], &answer, 1) != 1 || answer != 'y') usage("other");
  }

  void on_entry(const model::TraceEntry& entry) override {
    switch (entry.action) {
      case model::TraceAction::kFreeRequested:
        return fragscope_block_free_requested(0, entry.stream, entry.address);
      case model::TraceAction::kFreeCompleted:
        return fragscope_block_free_completed(0, entry.stream, entry.address);
      case model::TraceAction::kSegmentAlloc:
        return fragscope_segment_alloc(0, entry.stream, entry.address, entry.size);
      case model::TraceAction::kSegmentFree:
        return fragscope_segment_free(0, entry.stream, entry.address, entry.size);
      case model::TraceAction::kOom:
        return fragscope_oom(0, entry.stream, entry.size, entry.address);
      default:
        return;
    }
  }

  const model::VersionProfile& profile_;
  demo::CudaSegments segments_;
  model::CachingAllocator allocator_;
  std::map<std::string, uint64_t> blocks_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) usage("anything but SETTINGS STEPS");
  std::vector<std::string> steps;
  std::istringstream text(argv[2]);
  for (std::string step; std::getline(text, step, ';');) {
    const size_t start = step.find_first_not_of(" \n\t");
    if (start == std::string::npos) continue;
    steps.push_back(step.substr(start, step.find_last_not_of(" \n\t") - start + 1));
  }
  Scenario(argv[1]).run(steps);
  std::fflush(stdout);
  _exit(0);
}
