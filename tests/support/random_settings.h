// Seeded random settings strings (PYTORCH_CUDA_ALLOC_CONF), right and wrong, and command lists that
// show what an allocator makes of them.
#pragma once

#include <string>
#include <vector>

#include "tests/support/random_commands.h"

namespace fragscope::test {

class SettingsMaker {
 public:
  // `closed_lists`: a list always has its bracket (releases that read past the end without it).
  SettingsMaker(uint64_t seed, bool closed_lists) : random_(seed), closed_lists_(closed_lists) {}

  std::string settings() {
    std::string text;
    do {
      text.clear();
      for (uint64_t i = random_.below(4) + 1; i > 0; --i) {
        text += (text.empty() ? "" : ",") + option();
      }
      if (random_.chance(20)) damage(text);
    } while (closed_lists_ && has_open_list(text));
    return text;
  }

  // Settings at run time, each followed by requests that depend on them.
  std::vector<std::string> list(size_t commands) {
    std::vector<std::string> lines;
    for (size_t i = 0; lines.size() < commands; ++i) {
      lines.push_back("settings " + settings());
      for (uint64_t probe = random_.below(3); probe > 0; --probe) {
        const std::string id = "a" + std::to_string(i) + "_" + std::to_string(probe);
        lines.push_back("alloc " + id + " " + std::to_string(probe_size()));
        lines.push_back("free " + id);
      }
      if (random_.chance(30)) lines.push_back("empty_cache");
    }
    return lines;
  }

 private:
  std::string option() {
    static const std::vector<std::string> kFlags = {
        "expandable_segments",          "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",    "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register", "pinned_use_background_threads",
        "throw_on_cudamalloc_oom",      "graph_capture_record_stream_reuse",
        "pinned_free_catch_all"};
    static const std::vector<std::string> kNumbers = {"max_split_size_mb",
                                                      "max_non_split_rounding_mb",
                                                      "large_segment_size_mb",
                                                      "pinned_num_register_threads",
                                                      "pinned_reserve_segment_size_mb",
                                                      "pinned_max_round_threshold_mb",
                                                      "pinned_max_cached_size_mb",
                                                      "roundup_power2_divisions"};
    const uint64_t dice = random_.below(100);
    if (dice < 25) return random_.pick(kFlags) + ":" + flag();
    if (dice < 55) return random_.pick(kNumbers) + ":" + number();
    if (dice < 70) return "garbage_collection_threshold:" + share();
    if (dice < 85) return "roundup_power2_divisions:" + divisions();
    if (dice < 90) return "per_process_memory_fraction:" + share();
    if (dice < 93) return "backend:" + random_.pick(Words{"native", "native", "Native", "foo", ""});
    if (dice < 97)
      return "expandable_segments_reserve:" +
             random_.pick(Words{"0.5", "40G", "0.3G", "0", "-1", "x", "5G"});
    return random_.pick(
        Words{"unknown_option:1", "max_split_size:1", "", "roundup_bypass_threshold_mb:4"});
  }

  using Words = std::vector<std::string>;

  std::string flag() {
    if (random_.chance(85)) return random_.chance(50) ? "True" : "False";
    return random_.pick(Words{"true", "1", "0", "", "FALSE", "Truee", " True", "\tTrue", "[True]"});
  }
  std::string number() {
    if (random_.chance(50)) return std::to_string(1ull << random_.below(11));
    if (random_.chance(50)) return std::to_string(9 + random_.below(60));
    return random_.pick(Words{"0",
                              "10",
                              "11",
                              "19",
                              "20",
                              "21",
                              "-1",
                              "-21",
                              "+32",
                              " 32",
                              "0x40",
                              "64.7",
                              "128mb",
                              "1e3",
                              "",
                              "abc",
                              "2147483647",
                              "2147483648",
                              "4294967296",
                              "9223372036854775808",
                              "18446744073709551615",
                              "18446744073709551616",
                              "99999999999999999999999",
                              "\t40",
                              "12 8"});
  }
  std::string share() {
    if (random_.chance(60)) return "0." + std::to_string(1 + random_.below(99));
    return random_.pick(Words{"0", "1", "1.0", "0.0", "-0.5", "1.5", "nan", "inf", "1e-3", "1e-400",
                              "0x0.8", "", "half", ".5", "5e-1abc", "1e999"});
  }
  std::string divisions() {
    if (random_.chance(30)) return number();
    std::string text = "[";
    for (uint64_t i = random_.below(5); i > 0; --i) {
      text += (random_.chance(85) ? std::to_string(1ull << random_.below(18)) : number()) + ":" +
              (random_.chance(85) ? std::to_string(1ull << random_.below(6)) : number()) +
              (i > 1 || random_.chance(10) ? "," : "");
    }
    if (random_.chance(50)) {
      text += (text.size() > 1 && text.back() != ',' ? ",>:" : ">:") +
              std::to_string(1ull << random_.below(5));
    }
    return text + "]";
  }

  // One or two characters are lost, doubled or put in.
  void damage(std::string& text) {
    static const std::string kPutIn = ",:[]> \t\n;=0129.-TFe";
    for (uint64_t i = 1 + random_.below(2); i > 0 && !text.empty(); --i) {
      const size_t at = random_.below(text.size());
      const uint64_t dice = random_.below(3);
      if (dice == 0) {
        text.erase(at, 1);
      } else {
        text.insert(at, 1, dice == 1 ? text[at] : kPutIn[random_.below(kPutIn.size())]);
      }
    }
    for (char& c : text) {
      if (c == '\n' || c == '#') c = ' ';  // a list has one command a line
    }
  }

  static bool has_open_list(const std::string& text) {
    const size_t open = text.rfind('[');
    return open != text.npos && text.find(']', open) == text.npos;
  }

  uint64_t probe_size() {
    static const std::vector<uint64_t> kSizes = {
        1,        1025,      5000,      1048576,   1048577,    3145729,   11534336,
        22020097, 104857601, 314572801, 629145601, 1153433600, 3145728001};
    return random_.pick(kSizes);
  }

  Random random_;
  bool closed_lists_;
};

}  // namespace fragscope::test
