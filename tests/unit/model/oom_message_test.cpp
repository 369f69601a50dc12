// Texts of the out-of-memory error, word by word, where they changed between releases.
#include "model/oom_message.h"

#include "base/bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

OomFacts facts() {
  OomFacts f;
  f.requested = 30 * kMiB - 100;
  f.segment = 30 * kMiB;
  f.device_free = 10 * kMiB;
  f.device_total = 8 * kGiB;
  f.allocated = 3 * kGiB;
  f.private_free = 512 * kMiB;
  f.reserved = 7 * kGiB;
  return f;
}

std::string message(const char* version, const OomFacts& f, const char* settings = "") {
  const VersionProfile& profile = version_profile(version);
  return oom_message(f, profile, parse_config(settings, profile).value(), 1);
}

const std::string kHead = "CUDA out of memory. Tried to allocate 30.00 MiB";
const std::string kOldAdvice =
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF="
    "expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)";
const std::string kNewAdvice =
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF="
    "expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-"
    "cuda-alloc-conf)";
const std::string kPlain =
    "Of the allocated memory 3.00 GiB is allocated by PyTorch, and 4.00 GiB is reserved by PyTorch "
    "but unallocated.";
const std::string kPools =
    "Of the allocated memory 3.50 GiB is allocated by PyTorch, with 512.00 MiB allocated in "
    "private "
    "pools (e.g., CUDA Graphs), and 3.50 GiB is reserved by PyTorch but unallocated.";
const std::string kCard = ". GPU 1 has a total capacity of 8.00 GiB of which 10.00 MiB is free. ";

}  // namespace

TEST_CASE("2.0: figures in parentheses") {
  OomFacts f = facts();
  const std::string tail =
      "7.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
      "setting "
      "max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and "
      "PYTORCH_CUDA_ALLOC_CONF";
  const std::string figures =
      " (GPU 1; 8.00 GiB total capacity; 3.00 GiB already allocated; 10.00 MiB free; ";
  CHECK(message("2.0", f) == kHead + figures + tail);
  f.allowed = 6 * kGiB;
  CHECK(message("2.0", f) == kHead + figures + "6.00 GiB allowed; " + tail);
}

TEST_CASE("2.1 to 2.3: sentences, without private pools") {
  CHECK(message("2.1", facts()) ==
        kHead + ". GPU 1 has a total capacty of 8.00 GiB of which 10.00 MiB is free. " + kPlain +
            " If reserved but unallocated memory is large try setting max_split_size_mb to avoid "
            "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF");
  CHECK(message("2.2", facts()) == kHead + kCard + kPlain + kOldAdvice);
  CHECK(message("2.3", facts()) ==
        kHead + ". GPU \x01 has a total capacity of 8.00 GiB of which 10.00 MiB is free. " +
            kPlain + kOldAdvice);
}

TEST_CASE("2.4 on: private pools; 2.5 on: what is allowed") {
  OomFacts f = facts();
  CHECK(message("2.4", f) == kHead + kCard + kPools + kOldAdvice);
  f.allowed = 6 * kGiB;
  CHECK(message("2.4", f) == kHead + kCard + kPools + kOldAdvice);
  for (const char* version : {"2.5", "2.9"}) {
    CHECK(message(version, f) == kHead + kCard + "6.00 GiB allowed; " + kPools + kOldAdvice);
  }
  for (const char* version : {"2.11", "2.14", "2.15"}) {
    CHECK(message(version, f) == kHead + kCard + "6.00 GiB allowed; " + kPools + kNewAdvice);
  }
  f.private_free = 0;
  f.allowed.reset();
  CHECK(message("2.6", f) == kHead + kCard + kPlain + kOldAdvice);
  CHECK(message("2.10", f) == kHead + kCard + kPlain +
                                  " If reserved but unallocated memory is large try setting "
                                  "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid "
                                  "fragmentation.  See documentation for Memory Management  "
                                  "(https://pytorch.org/docs/stable/notes/cuda.html#environment-"
                                  "variables)");
}

TEST_CASE("the advice with expandable segments on") {
  OomFacts f = facts();
  f.private_free = 0;
  const char* on = "expandable_segments:True";
  CHECK(message("2.13", f, on) == kHead + kCard + kPlain + kNewAdvice);
  CHECK(message("2.14", f, on) == kHead + kCard + kPlain);
  CHECK(message("2.15", f, on) ==
        kHead + kCard + kPlain +
            " expandable_segments is enabled. If instead the process is running out of virtual "
            "address space (VSZ), expandable segments may be over-reserving VA (each segment "
            "reserves ~9/8 of device memory, times the number of streams); reduce it via "
            "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / "
            "expandable_segments_reserve_by_class.");
  const std::string exceeds =
      kHead + kCard + kPlain +
      " This allocation exceeds the expandable-segment reserve of 20.48 MiB for this stream, and a "
      "single allocation cannot span expandable segments. Raise PYTORCH_CUDA_ALLOC_CONF "
      "expandable_segments_reserve or expandable_segments_reserve_by_class (or unset it) so that a "
      "segment is at least 30.00 MiB.";
  const auto advises_more = [&](uint64_t segment, const char* reserve) {
    f.segment = segment;
    const std::string settings = std::string(on) + ",expandable_segments_reserve:" + reserve;
    return message("2.15", f, settings.c_str()).find("exceeds the expandable-segment reserve") !=
           std::string::npos;
  };
  CHECK(message("2.15", f, "expandable_segments:True,expandable_segments_reserve:0.02G") ==
        exceeds);
  CHECK_FALSE(advises_more(30 * kMiB, "0.03G"));
  CHECK_FALSE(advises_more(kGiB, "1G"));
  CHECK(advises_more(kGiB + 2 * kMiB, "1G"));
  CHECK(advises_more(8 * kGiB, "1G"));
  CHECK_FALSE(advises_more(8 * kGiB + 2 * kMiB, "1G"));  // no device could hold it
}

TEST_CASE("other errors of requests") {
  CHECK(rejection_message(facts()) ==
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
        "per_process_memory_fraction limit. Requested size: 30.00 MiB");
  CHECK(fraction_error(1.5) == "invalid fraction:1.5. Please set within [0, 1].");
  CHECK(fraction_error(-0.25) == "invalid fraction:-0.25. Please set within [0, 1].");
}
