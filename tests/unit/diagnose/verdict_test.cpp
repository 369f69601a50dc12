#include "diagnose/verdict.h"

#include <algorithm>

#include "base/bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::diagnose;

namespace {

Explanation explain_text(std::string_view text, std::string_view context = {}) {
  const MessageScan scan = scan_message(text, context);
  REQUIRE(scan.message);
  return explain(scan);
}

bool offers(const Explanation& e, Verdict verdict) {
  return std::find(e.alternatives.begin(), e.alternatives.end(), verdict) != e.alternatives.end();
}

bool says(const Explanation& e, std::string_view words) {
  return std::any_of(e.why.begin(), e.why.end(), [words](const std::string& sentence) {
    return sentence.find(words) != std::string::npos;
  });
}

// "(GPU 0; total; allocated; free; [allowed;] reserved)", sizes as c10 prints them.
std::string legacy(const std::string& tried, const std::string& total, const std::string& allocated,
                   const std::string& free, const std::string& rest) {
  return "CUDA out of memory. Tried to allocate " + tried + " (GPU 0; " + total +
         " total capacity; " + allocated + " already allocated; " + free + " free; " + rest;
}

std::string current(const std::string& tried, const std::string& total, const std::string& free,
                    const std::string& between, const std::string& allocated,
                    const std::string& idle) {
  return "CUDA out of memory. Tried to allocate " + tried + ". GPU 0 has a total capacity of " +
         total + " of which " + free + " is free. " + between + "Of the allocated memory " +
         allocated + " is allocated by PyTorch, and " + idle +
         " is reserved by PyTorch but unallocated.";
}

}  // namespace

TEST_CASE("derived figures are differences of the printed ones") {
  const auto e = explain_text(
      legacy("1.00 GiB", "10.00 GiB", "4.00 GiB", "512.00 MiB", "8.50 GiB reserved in total by"));
  CHECK(e.derived.reserved == static_cast<int64_t>(17 * kGiB / 2));
  CHECK(e.derived.idle_reserved == static_cast<int64_t>(9 * kGiB / 2));
  CHECK(e.derived.obtainable == static_cast<int64_t>(5 * kGiB));
  CHECK(e.derived.outside_pytorch == static_cast<int64_t>(kGiB));
  CHECK_FALSE(e.derived.cap);
  CHECK_FALSE(e.derived.other_processes);
}

TEST_CASE("cached is idle memory in the wording up to 1.3") {
  const auto e =
      explain_text(legacy("1.00 GiB", "10.00 GiB", "4.00 GiB", "512.00 MiB", "4.50 GiB cached)"));
  CHECK(e.derived.reserved == static_cast<int64_t>(17 * kGiB / 2));
  CHECK(e.derived.obtainable == static_cast<int64_t>(5 * kGiB));
  CHECK(e.verdict == Verdict::kFragmentation);
}

TEST_CASE("more is idle than asked for: fragmentation") {
  const auto clear = explain_text(
      legacy("1.00 GiB", "10.00 GiB", "4.00 GiB", "512.00 MiB", "8.50 GiB reserved in total by"));
  CHECK(clear.verdict == Verdict::kFragmentation);
  CHECK(clear.confidence == Confidence::kHigh);
  const auto near = explain_text(
      legacy("1.00 GiB", "10.00 GiB", "7.90 GiB", "512.00 MiB", "8.50 GiB reserved in total by"));
  CHECK(near.verdict == Verdict::kFragmentation);
  CHECK(near.confidence == Confidence::kMedium);
  CHECK(offers(near, Verdict::kTrueExhaustion));
}

TEST_CASE("free memory below the printed precision of the shortage: no certainty") {
  const auto e = explain_text(
      legacy("520.00 MiB", "10.00 GiB", "8.49 GiB", "512.00 MiB", "8.50 GiB reserved in total by"));
  CHECK(e.verdict == Verdict::kFragmentation);
  CHECK(e.confidence == Confidence::kLow);
}

TEST_CASE("live data fills the card: exhaustion, though the idle pieces would do") {
  const auto e =
      explain_text(current("60.00 MiB", "40.00 GiB", "50.00 MiB", "", "38.50 GiB", "80.00 MiB"));
  CHECK(e.verdict == Verdict::kTrueExhaustion);
  CHECK(offers(e, Verdict::kFragmentation));
}

TEST_CASE("more than all obtainable memory: exhaustion") {
  const auto e = explain_text(
      legacy("3.00 GiB", "8.00 GiB", "5.50 GiB", "1.00 GiB", "6.00 GiB reserved in total by"));
  CHECK(e.verdict == Verdict::kTrueExhaustion);
  CHECK(e.confidence == Confidence::kHigh);  // 5.5 + 3 > 8
  const auto fits_nearly = explain_text(
      legacy("1.00 GiB", "8.00 GiB", "6.50 GiB", "256.00 MiB", "6.75 GiB reserved in total by"));
  CHECK(fits_nearly.verdict == Verdict::kTrueExhaustion);
  CHECK(fits_nearly.confidence == Confidence::kMedium);
}

TEST_CASE("a request above the card is exhaustion whatever else is printed") {
  const auto e = explain_text(legacy("30.00 GiB", "8.00 GiB", "0 bytes", "7.00 GiB",
                                     "4.00 GiB allowed; 9.00 GiB reserved "
                                     "in total by"));
  CHECK(e.verdict == Verdict::kTrueExhaustion);
  CHECK(e.confidence == Confidence::kHigh);
  CHECK(says(e, "contradict"));
}

TEST_CASE("gigabytes outside PyTorch: its own libraries or others") {
  const auto unlisted = explain_text(
      legacy("2.00 GiB", "24.00 GiB", "12.00 GiB", "64.00 MiB", "12.50 GiB reserved in total by"));
  CHECK(unlisted.verdict == Verdict::kNonPytorchMemory);
  CHECK(offers(unlisted, Verdict::kOtherProcess));
  CHECK(unlisted.confidence != Confidence::kHigh);

  const auto told = explain_text(
      legacy("2.00 GiB", "24.00 GiB", "12.00 GiB", "64.00 MiB", "12.50 GiB reserved in total by"),
      "another process runs on this card");
  CHECK(told.verdict == Verdict::kOtherProcess);

  const auto most = explain_text(
      legacy("2.00 GiB", "24.00 GiB", "3.00 GiB", "64.00 MiB", "3.10 GiB reserved in total by"));
  CHECK(most.verdict == Verdict::kOtherProcess);

  const auto small_idle = explain_text(legacy("200.00 MiB", "24.00 GiB", "16.00 GiB", "150.00 MiB",
                                              "16.20 GiB reserved in total by"));
  CHECK(small_idle.verdict == Verdict::kNonPytorchMemory);
  CHECK(offers(small_idle, Verdict::kFragmentation));
}

TEST_CASE("listed processes say whose it is") {
  const auto others = explain_text(
      current("1.00 GiB", "24.00 GiB", "100.00 MiB",
              "Process 77 has 19.00 GiB memory in use. Including non-PyTorch memory, this process "
              "has 5.00 GiB memory in use. ",
              "4.00 GiB", "200.00 MiB"));
  CHECK(others.verdict == Verdict::kOtherProcess);
  CHECK(others.confidence == Confidence::kHigh);
  CHECK(others.derived.other_processes == static_cast<int64_t>(19 * kGiB));

  const auto own = explain_text(
      current("1.00 GiB", "24.00 GiB", "100.00 MiB",
              "Including non-PyTorch memory, this process has 23.90 GiB memory in use. ",
              "10.00 GiB", "200.00 MiB"));
  CHECK(own.verdict == Verdict::kNonPytorchMemory);
}

TEST_CASE("in a container the process may be listed under another pid") {
  // 15.75 − 0.5 in use, all of it listed as one process: that is this one.
  const auto self =
      explain_text(current("600.00 MiB", "15.75 GiB", "512.00 MiB",
                           "Process 5 has 15.25 GiB memory in use. ", "13.50 GiB", "900.00 MiB"));
  CHECK(self.derived.other_processes == 0);
  CHECK(self.verdict == Verdict::kFragmentation);
  const auto other =
      explain_text(current("600.00 MiB", "15.75 GiB", "64.00 MiB",
                           "Process 5 has 12.00 GiB memory in use. ", "3.00 GiB", "100.00 MiB"));
  CHECK(other.derived.other_processes == static_cast<int64_t>(12 * kGiB));
  CHECK(other.verdict == Verdict::kOtherProcess);
}

TEST_CASE("room on the device and a limit: the limit refused") {
  const auto printed = explain_text(legacy("512.00 MiB", "12.00 GiB", "5.80 GiB", "5.50 GiB",
                                           "6.00 GiB allowed; 5.90 GiB reserved in total by"));
  CHECK(printed.verdict == Verdict::kMemoryFractionCap);
  CHECK(printed.confidence == Confidence::kHigh);
  CHECK_FALSE(offers(printed, Verdict::kFragmentation));
  const auto idle = explain_text(legacy("512.00 MiB", "12.00 GiB", "2.00 GiB", "5.50 GiB",
                                        "6.00 GiB allowed; 5.90 GiB reserved in total by"));
  CHECK(idle.verdict == Verdict::kMemoryFractionCap);
  CHECK(offers(idle, Verdict::kFragmentation));
  const auto told =
      explain_text(current("512.00 MiB", "12.00 GiB", "5.50 GiB", "", "5.80 GiB", "100.00 MiB"),
                   "torch.cuda.set_per_process_memory_fraction(0.5)");
  CHECK(told.verdict == Verdict::kMemoryFractionCap);
  CHECK(told.derived.cap == static_cast<int64_t>(6 * kGiB));
  // A limit of the whole card limits nothing.
  const auto whole = explain_text(legacy("2.00 GiB", "12.00 GiB", "11.00 GiB", "512.00 MiB",
                                         "12.00 GiB allowed; 11.25 GiB reserved in total by"));
  CHECK(whole.verdict == Verdict::kTrueExhaustion);
  CHECK_FALSE(whole.derived.cap);
}

TEST_CASE("room on the device and no known limit: unknown") {
  const auto e =
      explain_text(current("20.00 MiB", "4.00 GiB", "2.50 GiB", "", "800.00 MiB", "24.00 MiB"));
  CHECK(e.verdict == Verdict::kUnknown);
  CHECK(offers(e, Verdict::kMemoryFractionCap));
  CHECK(e.confidence == Confidence::kLow);
  // Wording A is older than the fraction.
  const auto a =
      explain_text(legacy("20.00 MiB", "4.00 GiB", "800.00 MiB", "2.50 GiB", "24.00 MiB cached)"));
  CHECK_FALSE(offers(a, Verdict::kMemoryFractionCap));
}

TEST_CASE("figures that contradict each other are called so") {
  // Neither the device (5.5 free) nor the limit (6.0 − 2.1) had a reason.
  const auto cap = explain_text(legacy("512.00 MiB", "12.00 GiB", "2.00 GiB", "5.50 GiB",
                                       "6.00 GiB allowed; 2.10 GiB reserved in total by"));
  CHECK(cap.verdict == Verdict::kUnknown);
  CHECK(offers(cap, Verdict::kMemoryFractionCap));
  CHECK(says(cap, "contradict"));
  const auto sum = explain_text(
      legacy("2.00 GiB", "8.00 GiB", "2.00 GiB", "1.00 GiB", "9.00 GiB reserved in total by"));
  CHECK(says(sum, "more than the total"));
  const auto order = explain_text(
      legacy("2.00 GiB", "8.00 GiB", "6.00 GiB", "1.00 GiB", "5.00 GiB reserved in total by"));
  CHECK(says(order, "more is allocated than reserved"));
}

TEST_CASE("the tutorial's message: fragmentation under a limit, and why") {
  for (
      const char* text :
      {"CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 12.00 GiB total capacity; 3.19 GiB "
       "already allocated; 6.40 GiB free; 9.60 GiB allowed)",
       "98.00 MiB refused, 12.00 GiB total, 3.19 GiB allocated, 6.40 GiB free, 9.60 GiB allowed",
       "CUDA out of memory. Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 12.00 GiB "
       "of which 6.40 GiB is free. 9.60 GiB allowed; Of the allocated memory 3.19 GiB is allocated "
       "by PyTorch"}) {
    INFO(text);
    const auto e = explain_text(text);
    CHECK(e.verdict == Verdict::kFragmentation);
    CHECK(e.alternatives == std::vector<Verdict>{Verdict::kMemoryFractionCap});
    CHECK(e.confidence == Confidence::kMedium);
    CHECK(says(e, "\"reserved\" is missing and a limit of 9.60 GiB is in force (80 %"));
    CHECK(says(e, "contradict"));
    CHECK(says(e, "12.00 GiB - 6.40 GiB = 5.60 GiB"));
    CHECK(says(e, "3.19 GiB allocated + 6.40 GiB free = 9.59 GiB"));
    CHECK_FALSE(e.derived.reserved);
    CHECK(e.derived.reserved_at_least == 10205161062);      // 9.60 GiB − 98 MiB
    CHECK(e.derived.idle_reserved_at_least == 6779924643);  // − 3.19 GiB
  }
}

TEST_CASE("the same without the coincidence stays unknown") {
  const auto e =
      explain_text(legacy("98.00 MiB", "12.00 GiB", "1.00 GiB", "6.40 GiB", "9.60 GiB allowed)"));
  CHECK(e.verdict == Verdict::kUnknown);
  CHECK(offers(e, Verdict::kMemoryFractionCap));
  CHECK(says(e, "contradict"));
}

TEST_CASE("idle memory is not printed: live data and the gap decide, with low confidence") {
  const auto async = [](const std::string& allocated, const std::string& tried,
                        const std::string& limit, const std::string& free) {
    return explain_text(
        "Allocation on device 0 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : " +
        allocated + "\nRequested               : " + tried +
        "\nDevice limit            : " + limit + "\nFree (according to CUDA): " + free + "\n");
  };
  CHECK(async("7.80 GiB", "1.00 GiB", "8.00 GiB", "0 bytes").verdict == Verdict::kTrueExhaustion);
  const auto gap = async("40.00 GiB", "1.00 GiB", "79.00 GiB", "30.00 MiB");
  CHECK(gap.verdict == Verdict::kFragmentation);
  CHECK(gap.confidence == Confidence::kLow);
  const auto some = async("17.00 GiB", "30.00 MiB", "22.00 GiB", "4.00 MiB");
  CHECK(some.verdict == Verdict::kNonPytorchMemory);
  CHECK(offers(some, Verdict::kFragmentation));
  CHECK(async("7.00 GiB", "512.00 MiB", "8.00 GiB", "0 bytes").verdict == Verdict::kTrueExhaustion);
}

TEST_CASE("a cut message is judged by what is left of it") {
  const auto full = explain_text(
      "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 3 has a total "
      "capacity of 40.00 GiB of which 1.50 MiB is free.");
  CHECK(full.verdict == Verdict::kTrueExhaustion);
  CHECK(full.confidence == Confidence::kLow);
  CHECK(explain_text("CUDA out of memory. Tried to allocate 2.00 MiB. GPU").verdict ==
        Verdict::kUnknown);
}

TEST_CASE("live data that should be gone") {
  const std::string message =
      legacy("64.00 MiB", "8.00 GiB", "7.20 GiB", "10.00 MiB", "7.25 GiB reserved in total by");
  CHECK(explain_text(message).verdict == Verdict::kTrueExhaustion);
  const auto told = explain_text(message, "usage grows steadily during evaluation");
  CHECK(told.verdict == Verdict::kLeakSuspected);
  CHECK(offers(told, Verdict::kTrueExhaustion));
  CHECK(explain_text(message, "this is not a memory leak").verdict == Verdict::kTrueExhaustion);
  const auto log = explain_text(
      legacy("64.00 MiB", "8.00 GiB", "6.00 GiB", "10.00 MiB", "6.10 GiB reserved in total by)\n") +
      legacy("64.00 MiB", "8.00 GiB", "6.60 GiB", "10.00 MiB", "6.70 GiB reserved in total by)\n") +
      message);
  CHECK(log.alternatives.at(0) == Verdict::kLeakSuspected);
}

TEST_CASE("bare CUDA errors are decided by their circumstances") {
  const char* bare = "RuntimeError: CUDA error: out of memory";
  CHECK(explain_text(bare).verdict == Verdict::kUnknown);
  CHECK(explain_text(bare).confidence == Confidence::kLow);
  CHECK(explain_text(bare, "in pin memory thread for device 0").verdict == Verdict::kHostPinned);
  CHECK(explain_text(bare, "a zombie process holds the card").verdict == Verdict::kOtherProcess);
  CHECK(explain_text("failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY").verdict ==
        Verdict::kOtherProcess);
  CHECK(explain_text(bare, "works with a smaller batch").verdict == Verdict::kTrueExhaustion);
  CHECK(explain_text("CUDA error: out of memory\nat cudaHostAlloc(&p, n, 0)").verdict ==
        Verdict::kHostPinned);
}

TEST_CASE("stated causes keep their verdicts") {
  CHECK(explain_text("NCCL WARN ibv_reg_mr failed with error Cannot allocate memory").verdict ==
        Verdict::kHostPinned);
  CHECK(explain_text("DataLoader worker (pid 3) is killed by signal: Bus error.").verdict ==
        Verdict::kShm);
  CHECK(explain_text("DataLoader worker (pid 3) is killed by signal: Bus error.",
                     "/dev/shm has 64 GB, also with num_workers 0")
            .verdict == Verdict::kUnknown);
  CHECK(explain_text("OSError: No space left on device: '/dev/shm/x'").verdict == Verdict::kShm);
  CHECK(explain_text("OSError: No space left on device: '/data/x'").verdict == Verdict::kUnknown);
  CHECK(explain_text("CUBLAS_STATUS_ALLOC_FAILED").confidence == Confidence::kLow);
  CHECK(explain_text("[HAMi-core ERROR (pid:7 thread=1 allocator.c:53)]: Device 1 OOM "
                     "18446744073707737000 / 12345678901")
            .verdict == Verdict::kMemoryFractionCap);
  const char* huge = "CUDA out of memory. Tried to allocate more than 1EB memory.";
  CHECK(explain_text(huge).verdict == Verdict::kTrueExhaustion);
  CHECK(explain_text(huge, "broadcast_object_list, rank 3 died").verdict == Verdict::kUnknown);
  CHECK(explain_text("Failed to allocate memory for requested buffer of size 4611686018427390976")
            .verdict == Verdict::kTrueExhaustion);
  const auto rejected = explain_text(
      "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
      "per_process_memory_fraction limit. Requested size: 2.00 GiB");
  CHECK(rejected.verdict == Verdict::kMemoryFractionCap);
  CHECK(rejected.confidence == Confidence::kHigh);
}

TEST_CASE("pools of other frameworks are weighed by their own limit") {
  CHECK(explain_text("Out of memory allocating 800,000,000 bytes (allocated so far: 536,870,912 "
                     "bytes, limit set to: 1,073,741,824 bytes).")
            .verdict == Verdict::kMemoryFractionCap);
  CHECK(explain_text("Stats:\nLimit: 4000000000\nInUse: 3000000000\nMaxInUse: 3000000001\n"
                     "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 50000000 bytes.")
            .verdict == Verdict::kFragmentation);
  CHECK(explain_text("Stats:\nLimit: 4000000000\nInUse: 3990000000\nMaxInUse: 3990000001\n"
                     "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 50000000 bytes.")
            .verdict == Verdict::kTrueExhaustion);
}

TEST_CASE("no alternative repeats the verdict or another alternative, and something can be done") {
  const std::vector<std::string> texts = {
      "CUDA error: out of memory",
      "CUDA out of memory.",
      "CUBLAS_STATUS_ALLOC_FAILED",
      "unhandled cuda error",
      "Cuda failure 'out of memory'",
      "cudaMalloc failed: out of memory",
      "is killed by signal: Bus error",
      "is killed by signal: Killed",
      "NPU out of memory",
      "No available memory for the cache blocks",
      "No space left on device",
      "Expandable segments are not compatible with memory pool",
      "could not allocate pinned host memory of size: 99 bytes",
      "Tried to allocate more than 1EB memory",
      current("600.00 MiB", "15.75 GiB", "64.00 MiB", "", "3.00 GiB", "1.00 GiB"),
      current("600.00 MiB", "15.75 GiB", "64.00 MiB", "", "14.00 GiB", "1.00 GiB")};
  const std::vector<std::string> contexts = {"",
                                             "pin_memory=True",
                                             "another process",
                                             "memory leak",
                                             "smaller batch",
                                             "no_grad, wsl, docker",
                                             "gpu_memory_utilization=0.95",
                                             "set_per_process_memory_fraction(0.1)"};
  for (const auto& text : texts) {
    for (const auto& context : contexts) {
      INFO(text << " / " << context);
      const auto e = explain_text(text, context);
      CHECK_FALSE(e.actions.empty());
      CHECK_FALSE(e.why.empty());
      auto all = e.alternatives;
      all.push_back(e.verdict);
      std::sort(all.begin(), all.end());
      CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
    }
  }
}

TEST_CASE("advice follows the release that printed the message") {
  const auto first = [](const Explanation& e) { return e.actions.at(0); };
  const auto old = explain_text(
      legacy("1.00 GiB", "10.00 GiB", "4.00 GiB", "512.00 MiB", "8.50 GiB reserved in total by"));
  CHECK(first(old).find("Update to torch 2.1") != std::string::npos);
  const auto now =
      explain_text(current("1.00 GiB", "10.00 GiB", "512.00 MiB", "", "4.00 GiB", "4.50 GiB"));
  CHECK(first(now).find("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True") != std::string::npos);
  const auto on =
      explain_text(current("1.00 GiB", "10.00 GiB", "512.00 MiB", "", "4.00 GiB", "4.50 GiB") +
                   " expandable_segments is enabled. If instead");
  CHECK(first(on).find("is on already") != std::string::npos);
}
