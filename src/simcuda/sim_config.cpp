#include "simcuda/sim_config.h"

#include <vector>

#include "base/bytes.h"
#include "model/device_memory.h"
#include "simcuda/text_rows.h"

namespace fragscope::simcuda {

namespace {

constexpr GpuPreset kPresets[] = {
#define GPU(id, name, total, sms, major, minor, l2, context, source) \
  {id, name, total, sms, major, minor, l2, context, source},
#include "simcuda/presets.def"
#undef GPU
};

Error invalid(std::string text) { return {ErrorCode::kInvalidArgument, std::move(text)}; }

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '%':
        out += "%25";
        break;
      case ';':
        out += "%3B";
        break;
      case '=':
        out += "%3D";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto code = text.substr(at, 3);
    if (code == "%25" || code == "%3B" || code == "%3D") {
      out += code == "%25" ? '%' : code == "%3B" ? ';' : '=';
      at += 2;
    } else {
      out += text[at];
    }
  }
  return out;
}

bool read_capability(std::string_view text, SimConfig& config) {
  const size_t dot = text.find('.');
  return dot != std::string_view::npos && read_number(text.substr(0, dot), config.cc_major) &&
         read_number(text.substr(dot + 1), config.cc_minor);
}

bool set_value(SimConfig& config, std::string_view key, std::string_view value) {
  if (key == "devices") {
    return read_number(value, config.devices) && config.devices >= 1 &&
           config.devices <= model::kMaxDevices;
  }
  if (key == "total_bytes") return read_number(value, config.total_bytes);
  if (key == "context_bytes") return read_number(value, config.context_bytes);
  if (key == "cc") return read_capability(value, config);
  if (key == "sm_count") return read_number(value, config.sm_count) && config.sm_count >= 1;
  if (key == "l2_bytes") return read_number(value, config.l2_bytes);
  if (key == "event_latency_queries") return read_number(value, config.event_latency_queries);
  if (key == "kernel_us") {
    return read_number(value, config.kernel_us) && config.kernel_us <= kMostKernelUs;
  }
  if (key == "nccl_channels") return read_number(value, config.nccl_channels);
  if (key == "answers" || key == "script") {
    (key == "answers" ? config.answers : config.script) = unescape(value);
    return true;
  }
  if (key != "name" && key != "preset" && key != "books") return false;
  (key == "name" ? config.name : key == "preset" ? config.preset : config.books) = unescape(value);
  return true;
}

void apply(const GpuPreset& preset, SimConfig& config) {
  config.preset = preset.id;
  config.name = preset.name;
  config.total_bytes = preset.total_bytes;
  config.context_bytes = preset.context_bytes;
  config.cc_major = preset.cc_major;
  config.cc_minor = preset.cc_minor;
  config.sm_count = preset.sm_count;
  config.l2_bytes = preset.l2_bytes;
}

// Small letters and digits alone: "RTX 4090" and "rtx-4090" are the same.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') out += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out += c;
  }
  return out;
}

// Presets whose id or name has all of the text, else the part before its first '-'; "" for none.
std::string close_names(std::string_view text) {
  for (const auto& wanted : {plain(text), plain(text.substr(0, text.find('-')))}) {
    std::string names;
    // "12" is a size without its unit, "4090" a card.
    const bool number = wanted.find_first_not_of("0123456789") == std::string::npos;
    if (wanted.size() < (number ? 4 : 2)) continue;
    for (const GpuPreset& preset : kPresets) {
      const bool alike = plain(preset.id).find(wanted) != std::string::npos ||
                         plain(preset.name).find(wanted) != std::string::npos;
      if (alike) names += (names.empty() ? "" : ", ") + std::string(preset.id);
    }
    if (!names.empty()) return names;
  }
  return {};
}

std::string all_names() {
  std::string names;
  for (const GpuPreset& preset : kPresets)
    names += (names.empty() ? "" : ", ") + std::string(preset.id);
  return names;
}

// Splits "4x" off; 1 when there is none, 0 when the number is out of range.
int take_count(std::string_view& text) {
  const size_t x = text.find('x');
  int count = 0;
  if (x == std::string_view::npos || x == 0 || !read_number(text.substr(0, x), count)) return 1;
  text.remove_prefix(x + 1);
  return count >= 1 && count <= model::kMaxDevices ? count : 0;
}

}  // namespace

std::span<const GpuPreset> gpu_presets() { return kPresets; }

Result<SimConfig> resolve_gpu(std::string_view text) {
  const std::string quoted = "--gpu '" + std::string(text) + "'";
  SimConfig config;
  config.devices = take_count(text);
  if (config.devices == 0) {
    return invalid(quoted + ": 1 to " + std::to_string(model::kMaxDevices) + " devices");
  }
  for (const GpuPreset& preset : kPresets) {
    if (text != preset.id) continue;
    apply(preset, config);
    return config;
  }
  const auto bytes = parse_size(text);
  const bool usable =
      bytes.ok() && *bytes >= model::kDevicePage && *bytes <= model::kDeviceWindowBytes / 4;
  if (!usable) {
    const std::string close = close_names(text);
    const std::string_view problem = bytes.ok()
                                         ? ": a size must lie between 2MiB and 1536GiB"
                                         : " is neither a size such as 24GiB nor a known card";
    return invalid(
        quoted + std::string(problem) +
        (close.empty() ? (bytes.ok() ? "" : ": " + all_names()) : "; did you mean " + close + "?"));
  }
  config.total_bytes = *bytes;
  return config;
}

std::string uuid_text(int index) {
  return "GPU-46726167-5363-6f70-652d-73696d2d003" + std::to_string(index);
}

std::string format_config(const SimConfig& config) {
  std::string text = "devices=" + std::to_string(config.devices) +
                     ";total_bytes=" + std::to_string(config.total_bytes) +
                     ";context_bytes=" + std::to_string(config.context_bytes) +
                     ";name=" + escape(config.name) + ";cc=" + std::to_string(config.cc_major) +
                     "." + std::to_string(config.cc_minor) +
                     ";sm_count=" + std::to_string(config.sm_count) +
                     ";l2_bytes=" + std::to_string(config.l2_bytes) +
                     ";event_latency_queries=" + std::to_string(config.event_latency_queries) +
                     ";nccl_channels=" + std::to_string(config.nccl_channels);
  if (config.kernel_us != 0) text += ";kernel_us=" + std::to_string(config.kernel_us);
  if (!config.preset.empty()) text += ";preset=" + escape(config.preset);
  if (!config.answers.empty()) text += ";answers=" + escape(config.answers);
  if (!config.script.empty()) text += ";script=" + escape(config.script);
  if (!config.books.empty()) text += ";books=" + escape(config.books);
  return text;
}

Result<SimConfig> parse_config(std::string_view text) {
  SimConfig config;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos ||
        !set_value(config, item.substr(0, equals), item.substr(equals + 1))) {
      return invalid(std::string(kConfigVariable) + ": cannot use '" + std::string(item) + "'");
    }
  }
  if (config.total_bytes < model::kDevicePage ||
      config.total_bytes > model::kDeviceWindowBytes / 4) {
    return invalid(std::string(kConfigVariable) +
                   ": total_bytes must lie between 2 MiB and 1.5 TiB");
  }
  if (config.context_bytes > config.total_bytes) {
    return invalid(std::string(kConfigVariable) + ": context_bytes exceed total_bytes");
  }
  return config;
}

}  // namespace fragscope::simcuda
