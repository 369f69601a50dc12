// The settings grammar of 2.0 … 2.9: strict separators, TORCH_CHECK errors.
#include <bit>

#include "model/config_grammar.h"
#include "model/config_reader.h"

namespace fragscope::model {
namespace {

class Lexer : ConfigReader {
 public:
  Lexer(std::string_view text, const VersionProfile& profile, ConfigOrigin origin,
        AllocatorConfig& config)
      : ConfigReader(cut_settings(text, /*drop_all_blanks=*/false), profile, origin, config) {}

  ConfigFailure run() {
    for (; at_ < tokens_.size(); ++at_) {
      if (ConfigFailure failure = option(tokens_[at_])) return failure;
      if (at_ + 1 < tokens_.size()) {
        if (ConfigFailure failure = expect(',')) return failure;
      }
    }
    warn_of_ignored_options();
    return std::nullopt;
  }

 private:
  ConfigFailure option(const std::string& key) {
    if (key == "max_split_size_mb") return max_split_size();
    if (key == "max_non_split_rounding_mb" && profile_.has_non_split_rounding) {
      return max_non_split_rounding();
    }
    if (key == "garbage_collection_threshold") return garbage_collection();
    if (key == "roundup_power2_divisions") return roundup();
    if (key == "backend") return backend();
    if (bool* flag = native_flag(key)) {
      native_ = true;
      return flag_value(cuda_name(key), *flag);
    }
    if (bool* flag = other_flag(key)) return other_value(cuda_name(key), *flag);
    if (key == "pinned_num_register_threads" && profile_.has_register_options) return threads();
    return "Unrecognized CachingAllocator option: " + key;
  }

  // Error texts name the option of CUDA builds.
  static std::string cuda_name(const std::string& key) {
    if (key == "release_lock_on_hipmalloc") return "release_lock_on_cudamalloc";
    return key == "pinned_use_hip_host_register" ? "pinned_use_cuda_host_register" : key;
  }

  bool* native_flag(const std::string& key) {
    if (key == "expandable_segments" && profile_.has_expandable) {
      return &config_.expandable_segments;
    }
    if (profile_.has_register_options &&
        (key == "release_lock_on_cudamalloc" || key == "release_lock_on_hipmalloc")) {
      return &config_.release_lock_on_cudamalloc;
    }
    return nullptr;
  }

  bool* other_flag(const std::string& key) {
    if (profile_.has_register_options &&
        (key == "pinned_use_cuda_host_register" || key == "pinned_use_hip_host_register")) {
      return &config_.pinned_use_cuda_host_register;
    }
    if (key == "pinned_use_background_threads" && profile_.has_background_threads) {
      return &config_.pinned_use_background_threads;
    }
    if (key == "graph_capture_record_stream_reuse" && profile_.has_capture_reuse) {
      return &config_.graph_capture_record_stream_reuse;
    }
    return nullptr;
  }

  ConfigFailure expect(char separator) {
    ++at_;
    if (at_ < tokens_.size() && tokens_[at_] == std::string(1, separator)) return std::nullopt;
    return std::string("Error parsing CachingAllocator settings, expected ") + separator;
  }

  // Moves to the value after `key:`; the option's own text if there is none.
  ConfigFailure to_value(const std::string& missing) {
    if (ConfigFailure failure = expect(':')) return failure;
    ++at_;
    if (at_ < tokens_.size()) return std::nullopt;
    return missing;
  }

  ConfigFailure size_value(const std::string& key, uint64_t& bytes) {
    if (ConfigFailure failure = to_value("Error, expecting " + key + " value")) return failure;
    const Result<int> number = read_int(tokens_[at_]);
    if (!number) return number.error().text;
    const auto megabytes = static_cast<uint64_t>(static_cast<int64_t>(number.value()));
    if (megabytes <= 20) return "CachingAllocator option " + key + " too small, must be > 20";
    bytes = bytes_of(megabytes);
    return std::nullopt;
  }

  ConfigFailure max_split_size() {
    native_ = true;
    return size_value("max_split_size_mb", config_.max_split_size);
  }

  ConfigFailure max_non_split_rounding() {
    native_ = true;
    return size_value("max_non_split_rounding_mb", config_.max_non_split_rounding);
  }

  ConfigFailure garbage_collection() {
    native_ = true;
    if (ConfigFailure failure = to_value("Error, expecting garbage_collection_threshold value")) {
      return failure;
    }
    const Result<double> value = read_double(tokens_[at_]);
    if (!value) return value.error().text;
    if (!(value.value() > 0)) return "garbage_collect_threshold too small, set it 0.0~1.0";
    if (!(value.value() < 1.0)) return "garbage_collect_threshold too big, set it 0.0~1.0";
    config_.garbage_collection_threshold = value.value();
    return std::nullopt;
  }

  std::string divisions_text() const {
    return profile_.minor >= 8 ? "For roundups, the divisions has to be power of 2 "
                               : "For roundups, the divisons has to be power of 2 ";
  }

  ConfigFailure roundup() {
    native_ = true;
    if (ConfigFailure failure = to_value("Error, expecting roundup_power2_divisions value")) {
      return failure;
    }
    if (tokens_[at_] == "[") return roundup_list();
    const Result<int> value = read_int(tokens_[at_]);
    if (!value) return value.error().text;
    const auto divisions = static_cast<uint64_t>(static_cast<int64_t>(value.value()));
    if (!std::has_single_bit(divisions)) return divisions_text();
    config_.roundup_power2_divisions.fill(divisions);
    return std::nullopt;
  }

  ConfigFailure roundup_list() {
    Divisions state;
    while (++at_ < tokens_.size() && tokens_[at_] != "]") {
      const std::string key = tokens_[at_];
      uint64_t divisions{};
      if (ConfigFailure failure = list_value(divisions)) return failure;
      if (ConfigFailure failure =
              add_divisions(key, read_unsigned_long(key), divisions, state.last, state)) {
        return failure;
      }
      if (at_ + 1 >= tokens_.size() && profile_.minor < 8) {  // these read past the end here
        return "roundup_power2_divisions: the list has no closing ]";
      }
      if (at_ + 1 < tokens_.size() && tokens_[at_ + 1] == "]") continue;
      if (ConfigFailure failure = expect(',')) return failure;
    }
    return std::nullopt;
  }

  ConfigFailure list_value(uint64_t& divisions) {
    if (ConfigFailure failure = to_value("Error parsing roundup_power2_divisions value")) {
      return failure;
    }
    const Result<int> value = read_int(tokens_[at_]);
    if (!value) return value.error().text;
    divisions = static_cast<uint64_t>(static_cast<int64_t>(value.value()));
    const bool zero = divisions == 0 && profile_.roundup_zero_in_list;
    if (zero || std::has_single_bit(divisions)) return std::nullopt;
    return divisions_text() + (profile_.roundup_zero_in_list ? "or 0 to disable roundup " : "");
  }

  ConfigFailure backend() {
    if (ConfigFailure failure = to_value("Error parsing backend value")) return failure;
    return choose_backend(tokens_[at_]);
  }

  ConfigFailure flag_value(const std::string& key, bool& flag) {
    const std::string text = "Expected a single True/False argument for " + key;
    if (ConfigFailure failure = to_value(text)) return failure;
    if (tokens_[at_] != "True" && tokens_[at_] != "False") return text;
    flag = tokens_[at_] == "True";
    return std::nullopt;
  }

  ConfigFailure other_value(const std::string& key, bool& flag) {
    if (ConfigFailure failure = to_value("Error, expecting " + key + " value")) return failure;
    if (tokens_[at_] != "True" && tokens_[at_] != "False") {
      return "Expected a single True/False argument for " + key;
    }
    flag = tokens_[at_] == "True";
    return std::nullopt;
  }

  ConfigFailure threads() {
    if (ConfigFailure failure = to_value("Error, expecting pinned_num_register_threads value")) {
      return failure;
    }
    const Result<int> value = read_int(tokens_[at_]);
    if (!value) return value.error().text;
    const auto count = static_cast<uint64_t>(static_cast<int64_t>(value.value()));
    if (!std::has_single_bit(count)) return "Number of register threads has to be power of 2 ";
    if (count > 128) return "Number of register threads should be less than or equal to 128";
    config_.pinned_num_register_threads = count;
    return std::nullopt;
  }
};

}  // namespace

ConfigFailure parse_with_lexer(std::string_view text, const VersionProfile& profile,
                               ConfigOrigin origin, AllocatorConfig& config) {
  return Lexer(text, profile, origin, config).run();
}

}  // namespace fragscope::model
