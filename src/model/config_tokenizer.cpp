// The settings grammar of 2.10 and later. Two parsers read the string, each its own options: the
// device-generic one and the CUDA one, which comes first for the environment's string.
#include <algorithm>
#include <bit>

#include "model/config_grammar.h"
#include "model/config_reader.h"
#include "model/rounding.h"

namespace fragscope::model {
namespace {

constexpr std::string_view kReserveByClass = "expandable_segments_reserve_by_class";
constexpr std::string_view kOutOfBounds = "Index out of bounds in ConfigTokenizer";
constexpr std::string_view kOpenList =
    "Expected closing bracket ']' in ConfigTokenizer but reached end of config";

class Tokenizer : ConfigReader {
 public:
  Tokenizer(std::string_view text, const VersionProfile& profile, ConfigOrigin origin,
            AllocatorConfig& config)
      : ConfigReader(cut_settings(text, /*drop_all_blanks=*/true), profile, origin, config) {}

  // One parser's pass over the string.
  ConfigFailure pass(bool generic) {
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      const std::string key = tokens_[at_];
      ConfigFailure failure;
      if (generic ? generic_option(key, failure) : cuda_option(key, failure)) {
        if (failure) return failure;
      } else {
        if (!is_known(key)) {
          return "Unrecognized key '" + key + "' in " + (generic ? "Accelerator" : "CUDA") +
                 " allocator config.";
        }
        if (ConfigFailure skipped = skip_value()) return skipped;
      }
      ++at_;  // a separator, whatever it is
    }
    return std::nullopt;
  }

  // The library looks for the first backend before anything else; neither its name nor other keys
  // are looked at here, nor what stands behind it.
  ConfigFailure find_backend() {
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      if (tokens_[at_] == "backend") return to_value();
      if (ConfigFailure failure = skip_value()) return failure;
      ++at_;
    }
    return std::nullopt;
  }

  // large_segment_size_mb first, wherever it stands: other options' limits depend on it.
  ConfigFailure large_segments_first() {
    if (!profile_.has_large_segment_size) return std::nullopt;
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      if (tokens_[at_] != "large_segment_size_mb") continue;
      if (ConfigFailure failure = large_segment()) return failure;
    }
    return std::nullopt;
  }

  void finish() { warn_of_ignored_options(); }

 private:
  // False: not one of this parser's options.
  bool generic_option(const std::string& key, ConfigFailure& failure) {
    if (key == "max_split_size_mb") {
      failure = size_value(key, config_.max_split_size);
    } else if (key == "max_non_split_rounding_mb") {
      failure = size_value(key, config_.max_non_split_rounding);
      config_.max_non_split_rounding_named = !failure;
    } else if (key == "large_segment_size_mb" && profile_.has_large_segment_size) {
      failure = skip_value();  // large_segments_first() has read it
    } else if (key == "garbage_collection_threshold") {
      failure = garbage_collection();
    } else if (key == "roundup_power2_divisions") {
      failure = roundup();
    } else if (key == "pinned_max_round_threshold_mb" && profile_.has_pinned_limits) {
      failure = pinned_limit(config_.pinned_max_round_threshold);
    } else if (key == "pinned_max_cached_size_mb" && profile_.has_pinned_limits) {
      failure = pinned_limit(config_.pinned_max_cached_size);
    } else if (bool* flag = generic_flag(key)) {
      failure = flag_value(*flag);
    } else {
      return false;
    }
    return true;
  }

  bool* generic_flag(const std::string& key) {
    if (key == "expandable_segments") return &config_.expandable_segments;
    if (key == "pinned_use_background_threads") return &config_.pinned_use_background_threads;
    return nullptr;
  }

  bool cuda_option(const std::string& key, ConfigFailure& failure) {
    if (key == "backend") {
      failure = backend();
    } else if (bool* flag = cuda_flag(key)) {
      failure = flag_value(*flag);
    } else if (key == "pinned_num_register_threads") {
      failure = threads();
    } else if (key == "per_process_memory_fraction") {
      failure = fraction();
    } else if (key == "pinned_reserve_segment_size_mb") {
      failure = reserve_segment();
    } else if (key == "expandable_segments_reserve" && profile_.has_expandable_reserve) {
      failure = expandable_reserve();
    } else if (key == kReserveByClass && profile_.has_expandable_reserve) {
      failure = reserve_by_class();
    } else {
      return false;
    }
    return true;
  }

  bool* cuda_flag(const std::string& key) {
    if (key == "release_lock_on_cudamalloc" || key == "release_lock_on_hipmalloc") {
      return &config_.release_lock_on_cudamalloc;
    }
    if (key == "pinned_use_cuda_host_register" || key == "pinned_use_hip_host_register") {
      return &config_.pinned_use_cuda_host_register;
    }
    if (key == "graph_capture_record_stream_reuse") {
      return &config_.graph_capture_record_stream_reuse;
    }
    if (!profile_.has_throw_on_oom) return nullptr;
    if (key == "throw_on_cudamalloc_oom") return &config_.throw_on_cudamalloc_oom;
    if (key == "pinned_free_catch_all") return &config_.pinned_free_catch_all;
    return nullptr;
  }

  bool is_known(const std::string& key) {
    static constexpr std::string_view kAlways[] = {"max_split_size_mb",
                                                   "max_non_split_rounding_mb",
                                                   "garbage_collection_threshold",
                                                   "roundup_power2_divisions",
                                                   "backend",
                                                   "pinned_num_register_threads",
                                                   "per_process_memory_fraction",
                                                   "pinned_reserve_segment_size_mb"};
    if (std::find(std::begin(kAlways), std::end(kAlways), key) != std::end(kAlways)) return true;
    if (generic_flag(key) != nullptr || cuda_flag(key) != nullptr) return true;
    if (key == "large_segment_size_mb") return profile_.has_large_segment_size;
    if (key == "pinned_max_round_threshold_mb" || key == "pinned_max_cached_size_mb") {
      return profile_.has_pinned_limits;
    }
    return (key == "expandable_segments_reserve" || key == kReserveByClass) &&
           profile_.has_expandable_reserve;
  }

  // The token after the separator; separators are not checked.
  ConfigFailure to_value() {
    at_ += 2;
    if (at_ < tokens_.size()) return std::nullopt;
    return std::string(kOutOfBounds);
  }

  ConfigFailure skip_value() {
    if (ConfigFailure failure = to_value()) return failure;
    if (tokens_[at_] != "[") return std::nullopt;
    while (at_ < tokens_.size() && tokens_[at_] != "]") ++at_;
    if (at_ < tokens_.size()) return std::nullopt;
    return std::string(kOpenList);
  }

  ConfigFailure number_value(uint64_t& value) {
    if (ConfigFailure failure = to_value()) return failure;
    const Result<uint64_t> number = read_unsigned(tokens_[at_]);
    if (!number) return number.error().text;
    value = number.value();
    return std::nullopt;
  }

  ConfigFailure size_value(const std::string& key, uint64_t& bytes) {
    native_ = true;
    uint64_t megabytes{};
    if (ConfigFailure failure = number_value(megabytes)) return failure;
    const uint64_t least = least_size();
    if (megabytes < least) {
      return "CachingAllocator option " + key + " too small, must be >= " + std::to_string(least);
    }
    bytes = bytes_of(megabytes);
    return std::nullopt;
  }

  // MiB; the large segment's size counts also where its option stands later in the string.
  uint64_t least_size() const { return config_.large_segment_size / kMiB; }

  ConfigFailure large_segment() {
    uint64_t megabytes{};
    if (ConfigFailure failure = number_value(megabytes)) return failure;
    if (megabytes <= 10) {
      return "CachingAllocator option large_segment_size_mb must be > 10 MB";
    }
    config_.large_segment_size = bytes_of(megabytes);
    return std::nullopt;
  }

  ConfigFailure garbage_collection() {
    native_ = true;
    if (ConfigFailure failure = to_value()) return failure;
    const Result<double> value = read_double(tokens_[at_]);
    if (!value) return value.error().text;
    if (!(value.value() > 0 && value.value() < 1.0)) {
      return "garbage_collect_threshold is invalid, set it in (0.0, 1.0)";
    }
    config_.garbage_collection_threshold = value.value();
    return std::nullopt;
  }

  ConfigFailure roundup() {
    native_ = true;
    if (ConfigFailure failure = to_value()) return failure;
    if (tokens_[at_] == "[") return roundup_list();
    const Result<uint64_t> value = read_unsigned(tokens_[at_]);
    if (!value) return value.error().text;
    if (!std::has_single_bit(value.value())) {
      return "For roundups, the divisions has to be power of 2 ";
    }
    config_.roundup_power2_divisions.fill(value.value());
    return std::nullopt;
  }

  bool is_token(size_t at, std::string_view token) const {
    return at < tokens_.size() && tokens_[at] == token;
  }

  ConfigFailure roundup_list() {
    Divisions state;
    while (++at_ < tokens_.size() && tokens_[at_] != "]") {
      const size_t key = at_;
      uint64_t divisions{};
      if (ConfigFailure failure = number_value(divisions)) return failure;
      if (divisions != 0 && !std::has_single_bit(divisions)) {
        return "For roundups, the divisions has to be power of 2 or 0 to disable roundup ";
      }
      const std::string& name = tokens_[key];
      if (ConfigFailure failure =
              add_divisions(name, read_unsigned(name), divisions, state.last + 1, state)) {
        return failure;
      }
      if (at_ + 1 >= tokens_.size()) return std::string(kOutOfBounds);
      if (tokens_[at_ + 1] != "]") ++at_;
    }
    if (at_ < tokens_.size()) return std::nullopt;
    return std::string(kOpenList);
  }

  ConfigFailure flag_value(bool& flag) {
    if (ConfigFailure failure = to_value()) return failure;
    const std::string& value = tokens_[at_];
    if (value != "True" && value != "False") {
      return "Expected 'True' or 'False' at index " + std::to_string(at_) +
             " in ConfigTokenizer but got '" + value + "'";
    }
    flag = value == "True";
    return std::nullopt;
  }

  ConfigFailure backend() {
    if (ConfigFailure failure = to_value()) return failure;
    return choose_backend(tokens_[at_]);
  }

  ConfigFailure threads() {
    uint64_t count{};
    if (ConfigFailure failure = number_value(count)) return failure;
    const std::string got = ", got " + std::to_string(count);
    if (!std::has_single_bit(count)) {
      return "Number of register threads has to be power of 2" + got;
    }
    if (count > 128) {
      return "Number of register threads should be less than or equal to 128" + got;
    }
    config_.pinned_num_register_threads = count;
    return std::nullopt;
  }

  ConfigFailure fraction() {
    if (ConfigFailure failure = to_value()) return failure;
    const Result<double> value = read_double(tokens_[at_]);
    if (!value) return value.error().text;
    if (!(value.value() >= 0 && value.value() <= 1.0)) {
      return "per_process_memory_fraction is invalid, set it in [0.0, 1.0]";
    }
    config_.per_process_memory_fraction = value.value();
    return std::nullopt;
  }

  ConfigFailure reserve_segment() {
    uint64_t megabytes{};
    if (ConfigFailure failure = number_value(megabytes)) return failure;
    if (megabytes == 0) return "Pinned reserve segment size has to be greater than 0";
    config_.pinned_reserve_segment_size = megabytes * kMiB;
    return std::nullopt;
  }

  ConfigFailure pinned_limit(std::optional<uint64_t>& bytes) {
    uint64_t megabytes{};
    if (ConfigFailure failure = number_value(megabytes)) return failure;
    bytes = megabytes * kMiB;
    return std::nullopt;
  }

  // A fraction of the device ("0.5") or gigabytes ("40G"); anything else is ignored with a warning.
  ConfigFailure expandable_reserve() {
    if (ConfigFailure failure = to_value()) return failure;
    std::string_view text = tokens_[at_];
    const bool gigabytes = text.ends_with('G') || text.ends_with('g');
    if (gigabytes) text.remove_suffix(1);
    const Result<double> value = read_whole_decimal(text);
    if (!value || !(value.value() > 0)) {
      config_.warnings.emplace_back("Ignoring invalid expandable-segment reserve value");
      return std::nullopt;  // what was set before stays
    }
    config_.reserve_bytes.reset();
    config_.reserve_fraction.reset();
    if (gigabytes) {
      config_.reserve_bytes = saturated_bytes(value.value() * static_cast<double>(kGiB));
    } else {
      config_.reserve_fraction = value.value();
    }
    return std::nullopt;
  }

  // Ranges of streams that a program has tagged with a class; the others are not concerned. A name,
  // a separator and a value, whatever they are, then perhaps a comma.
  ConfigFailure reserve_by_class() {
    at_ += 2;  // separator and bracket, whatever they are
    while (!is_token(++at_, "]")) {
      if (at_ + 2 >= tokens_.size()) return std::string(kOutOfBounds);
      at_ += 2;
      if (is_token(at_ + 1, ",")) ++at_;
    }
    return std::nullopt;
  }
};

}  // namespace

ConfigFailure parse_with_tokenizer(std::string_view text, const VersionProfile& profile,
                                   ConfigOrigin origin, AllocatorConfig& config) {
  if (profile.has_large_segment_size) config.max_non_split_rounding_named = false;
  Tokenizer tokenizer(text, profile, origin, config);
  if (origin == ConfigOrigin::kEnvironment) {
    if (ConfigFailure failure = tokenizer.find_backend()) return failure;
  }
  const auto generic = [&]() -> ConfigFailure {
    if (ConfigFailure failure = tokenizer.large_segments_first()) return failure;
    if (!config.max_non_split_rounding_named) {
      config.max_non_split_rounding = config.large_segment_size;
    }
    return tokenizer.pass(/*generic=*/true);
  };
  const bool generic_first = origin == ConfigOrigin::kRunTime;
  if (generic_first) {
    if (ConfigFailure failure = generic()) return failure;
  }
  if (ConfigFailure failure = tokenizer.pass(/*generic=*/false)) return failure;
  if (!generic_first) {
    if (ConfigFailure failure = generic()) return failure;
  }
  tokenizer.finish();
  return std::nullopt;
}

}  // namespace fragscope::model
