// Graph captures in command lists: what they hold back, release by release. That these are the
// released libraries' rules is held by tests/oracle (families "captures").
#include <string>

#include "tests/support/catch.h"
#include "tests/support/run_list.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

bool completes(const CommandResult& result) {
  for (const auto& entry : result.trace) {
    if (entry.entry.action == TraceAction::kFreeCompleted) return true;
  }
  return false;
}

const std::string kFreedOnTwoStreams =
    "alloc a 30MiB\nrecord_stream a 2\nbegin_pool 1\nCAPTURE\nfree a\nalloc b 512\n";

std::string with_capture(bool captures) {
  std::string text = kFreedOnTwoStreams;
  text.replace(text.find("CAPTURE"), 7, captures ? "begin_capture" : "# none");
  return text;
}

}  // namespace

TEST_CASE("from 2.13 a capture holds frees back, a mere scope does not") {
  CHECK_FALSE(completes(run_list(with_capture(true), "2.15").results.back()));
  CHECK(completes(run_list(with_capture(false), "2.15").results.back()));
  CHECK_FALSE(completes(run_list(with_capture(false), "2.12").results.back()));
}

TEST_CASE("a capture that ends lets the flush run again") {
  const std::string list = "begin_capture\nempty_cache\nend_capture\nempty_cache\n";
  CHECK(run_list(list, "2.15").devices[0].stats.num_sync_all_streams == 1);
  CHECK(run_list(list, "2.12").devices[0].stats.num_sync_all_streams == 2);
  const ListResult misused = run_list("end_capture\nbegin_capture\nbegin_capture\n", "2.15");
  CHECK(misused.results[0].message == "no capture is under way");
  CHECK(misused.results[1].outcome == "ok");
  CHECK(misused.results[2].outcome == "error");
}

TEST_CASE("a private pool that is dropped with live blocks is said to be undefined in its ranges") {
  const std::string list =
      "capacity 300MiB\nbegin_pool 2\nalloc a 98MiB\nalloc b 98MiB\nfree b\nalloc c 20MiB\n"
      "end_pool 2\nrelease_pool 2\nfree a\nempty_cache\nalloc d 20MiB\n";
  const ListResult result = run_list(list, "2.15", "expandable_segments:True");
  CHECK(run_list(list, "2.15").undefined_from_line == std::nullopt);
  CHECK(result.undefined_from_line == 10u);
  for (const CommandResult& r : result.results) CHECK(r.outcome == "ok");
}

// The library counts one segment and asserts at the second unmapping of it.
TEST_CASE("a private range that is unmapped on both sides of a block is undefined from there") {
  const std::string list =
      "capacity 300MiB\nbegin_pool 2\nalloc a 98MiB\nfree a\nalloc b 30MiB\nalloc c 30MiB\n"
      "alloc d 30MiB\nend_pool 2\nfree b\nfree d\nrelease_pool 2\nempty_cache\nalloc e 20MiB\n"
      "empty_cache\n";
  CHECK(run_list(list, "2.15", "expandable_segments:True").undefined_from_line == 12u);
  CHECK(run_list(list, "2.15").undefined_from_line == std::nullopt);
}

TEST_CASE(
    "a pool of ranges whose count of segments ends before its blocks is undefined from there") {
  const std::string list =
      "capacity 300MiB\nbegin_pool 2\nalloc a 40MiB\nalloc b 60MiB\nfree b\nalloc x 20MiB\n"
      "alloc y 40MiB\nend_pool 2\nrelease_pool 2\nfree x\nempty_cache\nfree y\nempty_cache\n"
      "alloc z 30MiB\nfree a\nempty_cache\n";  // two mappings, two unmappings: a is left
  CHECK(run_list(list, "2.15", "expandable_segments:True").undefined_from_line == 13u);
}

TEST_CASE("what a pool lends on out of memory stays its own") {
  const std::string list =
      "capacity 100MiB\ncreate_pool 1 use_on_oom\nbegin_pool 1\nalloc a 60MiB\nend_pool 1\nfree a\n"
      "alloc b 50MiB\nfree b\nbegin_pool 1\nalloc c 60MiB\nend_pool 1\n";
  const ListResult result = run_list(list, "2.15");
  CHECK(result.results[5].address == result.results[2].address);  // b in a's place
  CHECK(result.results[8].outcome == "ok");
  CHECK(result.results[8].address == result.results[2].address);
  CHECK(result.devices[0].stats.segment.all.allocated == 1);
}

TEST_CASE("odd settings that the library meets with an error of the driver") {
  const std::string settings = "expandable_segments:True,large_segment_size_mb:37";
  const ListResult odd =
      run_list("capacity 700MiB\nalloc a 100MiB\nalloc b 512\n", "2.15", settings);
  CHECK(odd.results[0].message == "CUDA driver error: invalid argument");
  CHECK(odd.results[1].outcome == "ok");
}

TEST_CASE("throw_on_cudamalloc_oom counts with the option of the fraction") {
  const std::string list = "capacity 1000MiB\nalloc a 400MiB\nalloc b 200MiB\n";
  const std::string settings = "throw_on_cudamalloc_oom:True";
  CHECK(run_list(list, "2.15", settings).results[1].outcome == "ok");
  const ListResult set = run_list("capacity 1000MiB\nsettings per_process_memory_fraction:0.5\n" +
                                      list.substr(list.find('\n') + 1),
                                  "2.15", settings);
  CHECK(set.results[2].outcome == "rejected");
}

TEST_CASE("a use recorded under a pool scope ends with the scope from 2.4 on") {
  const std::string list =
      "alloc a 30MiB\nbegin_pool 1\nrecord_stream a 2\nwork 2\nfree a\nend_pool 1\n"
      "alloc b 512\n";
  CHECK_FALSE(completes(run_list(list, "2.3").results.back()));
  CHECK(completes(run_list(list, "2.4").results.back()));
}
