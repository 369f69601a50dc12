// Settings strings: what each release accepts, what it makes of it, and its error texts.
#include "model/allocator_config.h"

#include <cerrno>
#include <locale>
#include <map>
#include <string>
#include <vector>

#include "model/config_numbers.h"
#include "model/rounding.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

std::string error_of(const std::string& text, const char* version,
                     ConfigOrigin origin = ConfigOrigin::kEnvironment) {
  const auto config = parse_config(text, version_profile(version), {}, origin);
  return config ? "" : config.error().text;
}

AllocatorConfig config_of(const std::string& text, const char* version) {
  const auto config = parse_config(text, version_profile(version));
  INFO(text << " for " << version);
  REQUIRE(config.ok());
  return config.value();
}

using Table = std::array<uint64_t, kRoundupEntries>;

}  // namespace

TEST_CASE("profiles are found by release") {
  CHECK(find_version_profile("2.6").profile->minor == 6);
  CHECK(find_version_profile("2.6.0+cu124").profile->minor == 6);
  CHECK(find_version_profile("2.15.0a0").profile->minor == 15);
  for (const char* unknown : {"2.99", "3.0", "", "abc", "2.", "2.6x"}) {
    CHECK_FALSE(find_version_profile(unknown).exact);
    CHECK(find_version_profile(unknown).profile == &version_profiles().back());
  }
  CHECK(version_profiles().size() == 16);
}

TEST_CASE(
    "a profile that nobody filled in is the newest; only known and newer releases can be asked "
    "for") {
  VersionProfile fresh;
  fresh.name = version_profiles().back().name;
  CHECK(fresh == version_profiles().back());
  for (const char* release : {"2.0", "2.15", "2.6.1+cu124", "2.99", "3.0"}) {
    INFO(release);
    CHECK(asked_version_profile(release).ok());
  }
  for (const char* other : {"1.13", "2.5x", "2.-1", "2", "2.", "torch", "0.99", ""}) {
    INFO(other);
    CHECK_FALSE(asked_version_profile(other).ok());
  }
}

TEST_CASE("PYTORCH_ALLOC_CONF is read from 2.10 on") {
  for (const VersionProfile& profile : version_profiles()) {
    INFO("torch " << profile.name);
    CHECK(profile.has_generic_variable == (profile.minor >= 10));
  }
}

TEST_CASE("options start in their release") {
  const struct {
    const char* text;
    int first;
  } rows[] = {
      {"max_split_size_mb:21", 0},
      {"garbage_collection_threshold:0.5", 0},
      {"roundup_power2_divisions:4", 0},
      {"backend:native", 0},
      {"expandable_segments:True", 1},
      {"release_lock_on_cudamalloc:True", 2},
      {"pinned_use_cuda_host_register:False", 2},
      {"pinned_num_register_threads:8", 2},
      {"pinned_use_background_threads:True", 6},
      {"max_non_split_rounding_mb:64", 6},
      {"graph_capture_record_stream_reuse:False", 9},
      {"per_process_memory_fraction:0.5", 10},
      {"pinned_reserve_segment_size_mb:64", 10},
      {"large_segment_size_mb:32", 11},
      {"throw_on_cudamalloc_oom:True", 12},
      {"pinned_free_catch_all:True", 12},
      {"pinned_max_round_threshold_mb:64", 13},
      {"pinned_max_cached_size_mb:64", 13},
      {"expandable_segments_reserve:0.5", 15},
  };
  for (const auto& row : rows) {
    for (const VersionProfile& profile : version_profiles()) {
      INFO(row.text << " in " << profile.name);
      CHECK(parse_config(row.text, profile).ok() == (profile.minor >= row.first));
    }
  }
}

TEST_CASE("values") {
  CHECK(config_of("", "2.15").max_split_size == kUnlimitedSplit);
  for (const char* version : {"2.1", "2.9", "2.10", "2.15"}) {
    CHECK(config_of("max_split_size_mb:128", version).max_split_size == 128 * kMiB);
    CHECK(config_of(" max_split_size_mb : 128mb , ", version).max_split_size == 128 * kMiB);
    CHECK(config_of("max_split_size_mb:64.7", version).max_split_size == 64 * kMiB);
    CHECK(config_of("max_split_size_mb:-1", version).max_split_size == UINT64_MAX / kMiB * kMiB);
    CHECK(config_of("garbage_collection_threshold:0.6", version).garbage_collection_threshold ==
          0.6);
    CHECK(config_of("expandable_segments:True", version).expandable_segments);
    CHECK(config_of("backend:cudaMallocAsync", version).backend == "cudaMallocAsync");
    CHECK(config_of("backend:cudaMallocAsync,max_split_size_mb:64", version).warnings.size() == 1);
  }
  CHECK(config_of("large_segment_size_mb:40", "2.15").max_non_split_rounding == 40 * kMiB);
  CHECK(config_of("large_segment_size_mb:11", "2.15").large_segment_size == 11 * kMiB);
  CHECK(config_of("per_process_memory_fraction:0.5", "2.10").per_process_memory_fraction == 0.5);
  CHECK(config_of("expandable_segments_reserve:40G", "2.15").reserve_bytes == 40 * kGiB);
  CHECK(config_of("expandable_segments_reserve:0.5", "2.15").reserve_fraction == 0.5);
  CHECK(config_of("expandable_segments_reserve:no", "2.15").warnings.size() == 1);
}

// Every field that an option can write, by name.
std::map<std::string, std::string> fields_of(const AllocatorConfig& config) {
  const auto text = [](const auto& value) { return value ? std::to_string(*value) : "none"; };
  return {
      {"max_split_size", std::to_string(config.max_split_size)},
      {"max_non_split_rounding", std::to_string(config.max_non_split_rounding)},
      {"large_segment_size", std::to_string(config.large_segment_size)},
      {"gc", std::to_string(config.garbage_collection_threshold)},
      {"roundup", std::to_string(config.roundup_power2_divisions.back())},
      {"expandable", std::to_string(config.expandable_segments)},
      {"release_lock", std::to_string(config.release_lock_on_cudamalloc)},
      {"throw", std::to_string(config.throw_on_cudamalloc_oom)},
      {"reuse", std::to_string(config.graph_capture_record_stream_reuse)},
      {"fraction", text(config.per_process_memory_fraction)},
      {"backend", config.backend},
      {"reserve", text(config.reserve_fraction) + text(config.reserve_bytes)},
      {"register", std::to_string(config.pinned_use_cuda_host_register)},
      {"background", std::to_string(config.pinned_use_background_threads)},
      {"catch_all", std::to_string(config.pinned_free_catch_all)},
      {"threads", std::to_string(config.pinned_num_register_threads)},
      {"pinned_reserve", std::to_string(config.pinned_reserve_segment_size)},
      {"round_threshold", text(config.pinned_max_round_threshold)},
      {"max_cached", text(config.pinned_max_cached_size)},
  };
}

TEST_CASE("an option writes its field, and no other, in every release that has it") {
  const struct {
    const char* setting;
    const char* field;
    const char* value;
    int since;
  } rows[] = {
      {"max_split_size_mb:30", "max_split_size", "31457280", 0},
      {"max_non_split_rounding_mb:30", "max_non_split_rounding", "31457280", 6},
      {"garbage_collection_threshold:0.5", "gc", "0.500000", 0},
      {"roundup_power2_divisions:8", "roundup", "8", 0},
      {"expandable_segments:True", "expandable", "1", 1},
      {"release_lock_on_cudamalloc:True", "release_lock", "1", 2},
      {"release_lock_on_hipmalloc:True", "release_lock", "1", 2},
      {"throw_on_cudamalloc_oom:True", "throw", "1", 12},
      {"graph_capture_record_stream_reuse:True", "reuse", "1", 9},
      {"per_process_memory_fraction:0.5", "fraction", "0.500000", 10},
      {"backend:cudaMallocAsync", "backend", "cudaMallocAsync", 0},
      {"expandable_segments_reserve:0.5", "reserve", "0.500000none", 15},
      {"expandable_segments_reserve:2G", "reserve", "none2147483648", 15},
      {"pinned_use_cuda_host_register:True", "register", "1", 2},
      {"pinned_use_hip_host_register:True", "register", "1", 2},
      {"pinned_use_background_threads:True", "background", "1", 6},
      {"pinned_free_catch_all:True", "catch_all", "1", 12},
      {"pinned_num_register_threads:128", "threads", "128", 2},
      {"pinned_reserve_segment_size_mb:3", "pinned_reserve", "3145728", 10},
      {"pinned_max_round_threshold_mb:3", "round_threshold", "3145728", 13},
      {"pinned_max_cached_size_mb:3", "max_cached", "3145728", 13},
  };
  for (const VersionProfile& profile : version_profiles()) {
    const std::string name(profile.name);
    const char* const release = name.c_str();
    for (const auto& row : rows) {
      if (profile.minor < row.since) continue;
      INFO("torch " << profile.name << ", " << row.setting);
      auto wanted = fields_of(config_of("", release));
      CHECK(wanted.at(row.field) != row.value);
      wanted.at(row.field) = row.value;
      CHECK(fields_of(config_of(row.setting, release)) == wanted);
    }
  }
}

TEST_CASE("every option that cudaMallocAsync ignores warns of it, wherever it stands") {
  const std::vector<std::string> options = {
      "max_split_size_mb:64", "garbage_collection_threshold:0.5", "roundup_power2_divisions:4",
      "roundup_power2_divisions:[64:2,>:4]"};
  for (const VersionProfile& profile : version_profiles()) {
    std::vector<std::string> ignored = options;
    if (profile.has_non_split_rounding) ignored.push_back("max_non_split_rounding_mb:64");
    if (profile.grammar == ConfigGrammar::kLexer && profile.has_expandable) {
      ignored.push_back("expandable_segments:False");
    }
    const std::string name(profile.name);
    const char* version = name.c_str();
    CHECK(config_of("backend:cudaMallocAsync", version).warnings.empty());
    for (const std::string& option : ignored) {
      INFO("torch " << version << ", " << option);
      CHECK(config_of(option, version).warnings.empty());
      CHECK(config_of("backend:native," + option, version).warnings.empty());
      CHECK(config_of("backend:cudaMallocAsync," + option, version).warnings.size() == 1);
      CHECK(config_of(option + ",backend:cudaMallocAsync", version).warnings.size() == 1);
    }
  }
}

TEST_CASE("roundup tables of the two list readers") {
  const char* list = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]";
  const Table old_table = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8, 8, 8, 8, 8};
  const Table new_table = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8};
  for (const VersionProfile& profile : version_profiles()) {
    const auto config = parse_config(list, profile);
    REQUIRE(config.ok());
    CHECK(config.value().roundup_power2_divisions == (profile.minor < 10 ? old_table : new_table));
  }
  const Table all_eight = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
  Table but_first = all_eight;
  but_first[0] = 0;
  CHECK(config_of("roundup_power2_divisions:[>:8]", "2.9").roundup_power2_divisions == all_eight);
  CHECK(config_of("roundup_power2_divisions:[>:8]", "2.10").roundup_power2_divisions == but_first);
  CHECK(config_of("roundup_power2_divisions:8", "2.10").roundup_power2_divisions == all_eight);
  const Table gap = {2, 2, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  CHECK(config_of("roundup_power2_divisions:[4:2,16:4]", "2.6").roundup_power2_divisions == gap);
}

TEST_CASE("errors of 2.0 to 2.9") {
  const struct {
    const char* text;
    const char* error;
  } rows[] = {
      {"max_split_size_mb:20", "CachingAllocator option max_split_size_mb too small, must be > 20"},
      {"max_split_size_mb", "Error parsing CachingAllocator settings, expected :"},
      {"max_split_size_mb:", "Error, expecting max_split_size_mb value"},
      {"max_split_size_mb:x", "stoi"},
      {"max_split_size_mb:99999999999", "stoi"},
      {"max_split_size_mb:64 expandable_segments:True",
       "Error parsing CachingAllocator settings, expected ,"},
      {",max_split_size_mb:64", "Unrecognized CachingAllocator option: ,"},
      {"max_split:64", "Unrecognized CachingAllocator option: max_split"},
      {"garbage_collection_threshold:0", "garbage_collect_threshold too small, set it 0.0~1.0"},
      {"garbage_collection_threshold:1.0", "garbage_collect_threshold too big, set it 0.0~1.0"},
      {"garbage_collection_threshold:x", "stod"},
      {"expandable_segments:true", "Expected a single True/False argument for expandable_segments"},
      {"roundup_power2_divisions:3", "For roundups, the divisons has to be power of 2 "},
      {"roundup_power2_divisions:[100:2]", "For roundups, the intervals have to be power of 2 "},
      {"roundup_power2_divisions:[128:3]",
       "For roundups, the divisons has to be power of 2 or 0 to disable roundup "},
      {"backend:foo", "Unknown allocator backend, options are native and cudaMallocAsync"},
      {"pinned_num_register_threads:3", "Number of register threads has to be power of 2 "},
      {"pinned_num_register_threads:256",
       "Number of register threads should be less than or equal to 128"},
  };
  for (const auto& row : rows) CHECK(error_of(row.text, "2.6") == row.error);
  CHECK(error_of("roundup_power2_divisions:0", "2.8") ==
        "For roundups, the divisions has to be power of 2 ");
  CHECK(error_of("roundup_power2_divisions:[128:0]", "2.1") ==
        "For roundups, the divisons has to be power of 2 ");
  CHECK(error_of("roundup_power2_divisions:[128:0]", "2.4").empty());
  CHECK(error_of("roundup_power2_divisions:[128:2", "2.8") ==
        "Error parsing CachingAllocator settings, expected ,");
  CHECK_FALSE(error_of("roundup_power2_divisions:[128:2", "2.6").empty());
}

TEST_CASE("errors of 2.10 and later") {
  const char* bounds = "Index out of bounds in ConfigTokenizer";
  const struct {
    const char* text;
    const char* error;
  } rows[] = {
      {"max_split_size_mb:19",
       "CachingAllocator option max_split_size_mb too small, must be >= 20"},
      {"max_split_size_mb", bounds},
      {"max_split_size_mb:", bounds},
      {"max_split_size_mb:x", "stoull"},
      {",max_split_size_mb:64", "Unrecognized key ',' in CUDA allocator config."},
      {"garbage_collection_threshold:1.0",
       "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
      {"expandable_segments:true",
       "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'"},
      {"roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2 "},
      {"roundup_power2_divisions:[128:2",
       "Expected closing bracket ']' in ConfigTokenizer but reached end of config"},
      {"max_split_size_mb:19,backend:foo",
       "Unknown allocator backend, options are native and cudaMallocAsync"},
      {"pinned_num_register_threads:3", "Number of register threads has to be power of 2, got 3"},
      {"per_process_memory_fraction:1.5",
       "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"},
      {"backend:foo", "Unknown allocator backend, options are native and cudaMallocAsync"},
  };
  for (const auto& row : rows) CHECK(error_of(row.text, "2.10") == row.error);
  CHECK(error_of("nonsense:1", "2.15", ConfigOrigin::kRunTime) ==
        "Unrecognized key 'nonsense' in Accelerator allocator config.");
  // At run time the generic parser comes first.
  CHECK(error_of("roundup_power2_divisions:[128:2", "2.15", ConfigOrigin::kRunTime) == bounds);
  CHECK(error_of("max_split_size_mb:19,backend:foo", "2.15", ConfigOrigin::kRunTime) ==
        "CachingAllocator option max_split_size_mb too small, must be >= 20");
  CHECK(error_of("large_segment_size_mb:10", "2.15") ==
        "CachingAllocator option large_segment_size_mb must be > 10 MB");
  CHECK(error_of("expandable_segments_reserve_by_class:[a:0.5,b:2G]", "2.15").empty());
  CHECK(error_of("expandable_segments_reserve_by_class:0.5", "2.15") == bounds);
  CHECK(error_of("max_split_size_mb:20", "2.10").empty());
  CHECK(error_of("max_split_size_mb:30,large_segment_size_mb:40", "2.11") ==
        "CachingAllocator option max_split_size_mb too small, must be >= 40");
}

// A class list in which the two passes of 2.15 lose step: what the first takes for a value is an
// option to the second, whose value then is missing.
TEST_CASE("an option's value may be missing in one pass alone") {
  for (const char* option :
       {"expandable_segments_reserve", "backend", "pinned_num_register_threads",
        "per_process_memory_fraction", "pinned_reserve_segment_size_mb", "max_split_size_mb",
        "release_lock_on_cudamalloc", "throw_on_cudamalloc_oom"}) {
    INFO(option);
    CHECK(error_of(std::string("expandable_segments_reserve_by_class:[a],]:") + option, "2.15") ==
          "Index out of bounds in ConfigTokenizer");
  }
}

TEST_CASE("a second string resets some options and keeps the others") {
  for (const char* version : {"2.4", "2.9", "2.10", "2.15"}) {
    const VersionProfile& profile = version_profile(version);
    const AllocatorConfig before = config_of(
        "max_split_size_mb:64,expandable_segments:True,garbage_collection_threshold:0.5,"
        "roundup_power2_divisions:4",
        version);
    const auto after =
        parse_config("release_lock_on_cudamalloc:True", profile, before, ConfigOrigin::kRunTime);
    REQUIRE(after.ok());
    CHECK(after.value().max_split_size == kUnlimitedSplit);
    CHECK(after.value().garbage_collection_threshold == 0);
    CHECK(after.value().roundup_power2_divisions == Table{});
    CHECK(after.value().expandable_segments);
  }
  for (const char* version : {"2.10", "2.11", "2.13", "2.15"}) {
    const AllocatorConfig before = config_of("max_non_split_rounding_mb:64", version);
    const auto after = parse_config("max_split_size_mb:32", version_profile(version), before,
                                    ConfigOrigin::kRunTime);
    REQUIRE(after.ok());
    const bool reset = std::string(version) != "2.10";
    CHECK(after.value().max_non_split_rounding == (reset ? 20 : 64) * kMiB);
  }
}

TEST_CASE("white space in settings: blanks always go, the rest where all does") {
  for (const char space : {'\t', '\n', '\v', '\f', '\r', ' '}) {
    const std::string text = std::string("a") + space + "b:" + space;
    using Tokens = std::vector<std::string>;
    CHECK(cut_settings(text, true) == Tokens{"ab", ":"});
    const Tokens kept{std::string("a") + space + "b", ":", std::string(1, space)};
    CHECK(cut_settings(text, false) == (space == ' ' ? Tokens{"ab", ":"} : kept));
  }
  for (const char other : {'\b', '\x0e', '!'}) {
    CHECK(cut_settings(std::string(1, other), true) == std::vector{std::string(1, other)});
  }
}

TEST_CASE("reading a number leaves errno alone") {
  for (const char* text : {"4", "x", "99999999999999999999999"}) {
    errno = EDOM;
    (void)read_int(text);
    (void)read_unsigned(text);
    (void)read_unsigned_long(text);
    (void)read_double(text);
    CHECK(errno == EDOM);
  }
}

TEST_CASE("options before a failing one stay applied") {
  AllocatorConfig config;
  const Status status = apply_config("max_split_size_mb:64,nonsense:1", version_profile("2.6"),
                                     ConfigOrigin::kRunTime, config);
  CHECK_FALSE(status.ok());
  CHECK(config.max_split_size == 64 * kMiB);
}

TEST_CASE("round_size with uniform divisions") {
  const struct {
    uint64_t request;
    uint64_t by_divisions[5];  // 0, 1 (2.4 on), 2, 4, 8
    uint64_t old_one;          // 1 up to 2.3
  } rows[] = {
      {1, {512, 512, 512, 512, 512}, 512},
      {512, {512, 512, 512, 512, 512}, 512},
      {513, {1024, 1024, 1024, 1024, 1024}, 513},
      {1025, {1536, 1536, 1536, 1536, 1536}, 1025},
      {1200, {1536, 1536, 1536, 1536, 1536}, 1200},
      {2049, {2560, 2560, 3072, 2560, 2560}, 2049},
      {5000, {5120, 5120, 6144, 5120, 5120}, 5000},
      {1048577, {1049088, 1049088, 1572864, 1310720, 1179648}, 1048577},
      {3145729, {3146240, 3146240, 4194304, 3670016, 3407872}, 3145729},
      {104857599, {104857600, 104857600, 134217728, 117440512, 109051904}, 104857599},
      {136314887, {136315392, 136315392, 201326592, 167772160, 150994944}, 136314887},
  };
  const uint64_t divisions[] = {0, 1, 2, 4, 8};
  for (const auto& row : rows) {
    for (size_t i = 0; i < 5; ++i) {
      AllocatorConfig config;
      config.roundup_power2_divisions.fill(divisions[i]);
      for (const VersionProfile& profile : version_profiles()) {
        INFO(row.request << " with " << divisions[i] << " in " << profile.name);
        const bool old_one = divisions[i] == 1 && profile.minor < 4;
        CHECK(round_request(row.request, config, profile) ==
              (old_one ? row.old_one : row.by_divisions[i]));
      }
    }
  }
}

TEST_CASE("round_size with a list") {
  const struct {
    uint64_t request;
    uint64_t oldest, middle, newest;  // up to 2.3, 2.4 … 2.9, 2.10 on
  } rows[] = {
      {104857601, 104857601, 104858112, 104858112},
      {314572801, 314572801, 314573312, 314573312},
      {629145601, 805306368, 805306368, 805306368},
      {1258291201, 1342177280, 1342177280, 1342177280},
      {1153433600, 1207959552, 1207959552, 1342177280},
      {3145728001, 3221225472, 3221225472, 3221225472},
  };
  for (const VersionProfile& profile : version_profiles()) {
    const auto config =
        parse_config("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", profile).value();
    for (const auto& row : rows) {
      INFO(row.request << " in " << profile.name);
      const uint64_t expected = profile.minor < 4    ? row.oldest
                                : profile.minor < 10 ? row.middle
                                                     : row.newest;
      CHECK(round_request(row.request, config, profile) == expected);
    }
  }
}

TEST_CASE("segment sizes") {
  const AllocatorConfig config;
  CHECK(segment_bytes(512, config) == 2 * kMiB);
  CHECK(segment_bytes(1048576, config) == 2 * kMiB);
  CHECK(segment_bytes(1049088, config) == 20 * kMiB);
  CHECK(segment_bytes(10485248, config) == 20 * kMiB);
  CHECK(segment_bytes(10485760, config) == 10 * kMiB);
  CHECK(segment_bytes(10486272, config) == 12 * kMiB);
  CHECK(segment_bytes(19 * kMiB, config) == 20 * kMiB);
  CHECK(segment_bytes(21 * kMiB, config) == 22 * kMiB);
  AllocatorConfig other;
  other.large_segment_size = 11 * kMiB;
  CHECK(segment_bytes(2 * kMiB, other) == 11 * kMiB);
}

// Asked of the libraries of 2.12, 2.13 and 2.15.
TEST_CASE("in the environment what is open or missing up to the first backend comes first") {
  const std::string flag = "release_lock_on_cudamalloc:x";
  const std::string bad_flag =
      "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'x'";
  const std::string open =
      "Expected closing bracket ']' in ConfigTokenizer but reached end of config";
  const std::string missing = "Index out of bounds in ConfigTokenizer";
  const struct {
    std::string behind;
    std::string error;
  } rows[] = {
      {",backend:foo", bad_flag},
      {",backend", missing},
      {",backend:", missing},
      {",backend:native,foo", bad_flag},
      {",foo", missing},
      {",max_split_size_mb:[", open},
      {",foo,backend:native", missing},
      {",backend:foo,foo", bad_flag},
      {",backend:native,max_split_size_mb:[", bad_flag},
      {",backend:[,max_split_size_mb:[", bad_flag},
  };
  for (const char* version : {"2.10", "2.12", "2.15"}) {
    for (const auto& row : rows) {
      INFO(row.behind);
      CHECK(error_of((flag + row.behind).c_str(), version) == row.error);
    }
    CHECK(error_of("backend:native,foo", version) ==
          "Unrecognized key 'foo' in CUDA allocator config.");
    CHECK(error_of("backend:foo,roundup_power2_divisions:[", version) ==
          "Unknown allocator backend, options are native and cudaMallocAsync");
  }
}

TEST_CASE("a list that is open at once") {
  for (const VersionProfile& profile : version_profiles()) {
    INFO(profile.name);
    const std::string version(profile.name);
    const bool lexer = profile.minor < 10;
    for (const ConfigOrigin origin : {ConfigOrigin::kEnvironment, ConfigOrigin::kRunTime}) {
      CHECK(error_of("roundup_power2_divisions:[", version.c_str(), origin) ==
            (lexer ? ""
                   : "Expected closing bracket ']' in ConfigTokenizer but reached end of config"));
    }
    const std::string open = error_of("roundup_power2_divisions:[128:2", version.c_str());
    if (lexer) {
      CHECK(open == (profile.minor < 8 ? "roundup_power2_divisions: the list has no closing ]"
                                       : "Error parsing CachingAllocator settings, expected ,"));
    }
  }
}

TEST_CASE("warnings are those of the string that was read last") {
  const VersionProfile& profile = version_profile("2.15");
  AllocatorConfig config = config_of("backend:cudaMallocAsync,max_split_size_mb:64", "2.15");
  REQUIRE(config.warnings.size() == 1);
  REQUIRE(apply_config("expandable_segments:True", profile, ConfigOrigin::kRunTime, config).ok());
  CHECK(config.warnings.empty());
}

TEST_CASE("the smallest split limit that a release takes") {
  for (const VersionProfile& profile : version_profiles()) {
    INFO(profile.name);
    const bool refused =
        !error_of("max_split_size_mb:20", std::string(profile.name).c_str()).empty();
    CHECK(refused == profile.exclusive_minimum);
    CHECK(error_of("max_split_size_mb:21", std::string(profile.name).c_str()).empty());
  }
}

TEST_CASE("a decimal number is read whole, whatever the locale of the program") {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
  const auto value = read_whole_decimal("0.5");
  const bool comma_is_read = read_whole_decimal("0,5").ok();
  std::locale::global(before);
  REQUIRE(value.ok());
  CHECK(value.value() == 0.5);
  CHECK_FALSE(comma_is_read);
  CHECK_FALSE(read_whole_decimal("0.5x").ok());
  CHECK_FALSE(read_whole_decimal("x").ok());
  CHECK_FALSE(read_whole_decimal("").ok());
}

TEST_CASE(
    "a request of nothing rounds to the smallest block, a size beyond 64 bits to the largest") {
  for (const VersionProfile& profile : version_profiles()) {
    CHECK(round_request(0, AllocatorConfig{}, profile) == 512);
  }
  CHECK(saturated_bytes(18446744073709551616.0) == UINT64_MAX);
  CHECK(saturated_bytes(9223372036854775808.0) == uint64_t{1} << 63);
}

TEST_CASE("of two shares for expandable segments the later one counts alone") {
  const AllocatorConfig bytes =
      config_of("expandable_segments_reserve:0.5,expandable_segments_reserve:4G", "2.15");
  CHECK_FALSE(bytes.reserve_fraction);
  CHECK(bytes.reserve_bytes == 4 * kGiB);
  const AllocatorConfig share =
      config_of("expandable_segments_reserve:4G,expandable_segments_reserve:0.5", "2.15");
  CHECK_FALSE(share.reserve_bytes);
  CHECK(share.reserve_fraction == 0.5);
}

TEST_CASE("the newest release with something behind it is no newer one") {
  CHECK_FALSE(asked_version_profile(std::string(version_profiles().back().name) + "x").ok());
  CHECK(asked_version_profile("2.99").ok());
}
