#include "trace/host_memory.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trace/byte_source.h"

namespace fragscope::trace {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;
constexpr uint64_t kMostBytes = 256ull << 20;
constexpr unsigned kMostFiles = 1000;

void raise(std::optional<uint64_t>& value, const std::optional<uint64_t>& other) {
  if (other) value = std::max(value.value_or(0), *other);
}

void lower(std::optional<uint64_t>& value, const std::optional<uint64_t>& other) {
  if (other) value = std::min(value.value_or(UINT64_MAX), *other);
}

void raise(HostUse& use, const HostUse& other) {
  use.rss = std::max(use.rss, other.rss);
  raise(use.pss, other.pss);
  raise(use.shm, other.shm);
}

json known(const std::optional<uint64_t>& value) { return value ? json(*value) : json(nullptr); }

// Names of processes need not be UTF-8; JSON does.
std::string line_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

// Readers of parts; they throw json::exception for what is missing or of another type. The library
// would make some number of a negative one, a fraction or one that is too large.
template <typename T>
T number(const json& value) {
  const bool fits =
      value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<T>::max();
  if (!fits) throw json::type_error::create(302, "no number of this kind", &value);
  return value.get<T>();
}

template <typename T>
void take_number(const json& in, const char* key, T& out) {
  out = number<T>(in.at(key));
}

template <typename Key>
std::optional<uint64_t> known_at(const json& in, Key key) {
  const json& value = in.at(key);
  if (value.is_null()) return std::nullopt;
  return number<uint64_t>(value);
}

HostUse use_from(const json& in, size_t first) {
  return {number<uint64_t>(in.at(first)), known_at(in, first + 1), known_at(in, first + 2)};
}

HostSample sample_from(const json& in, size_t first_process) {
  HostSample sample;
  take_number(in, "t_ns", sample.time_ns);
  take_number(in, "looks", sample.looks);
  take_number(in, "processes", sample.processes);
  sample.tree = use_from(in.at("tree"), 0);
  take_number(in, "shm_unlinked", sample.shm_unlinked);
  sample.shm_used = known_at(in, "shm_used");
  sample.shm_total = known_at(in, "shm_total");
  take_number(in, "recorder", sample.recorder);
  sample.available = known_at(in, "available");
  if (in.contains("cgroup")) {  // not in files of the first builds
    sample.cgroup_used = known_at(in.at("cgroup"), 0);
    sample.cgroup_limit = known_at(in.at("cgroup"), 1);
  }
  for (const json& row : in.at("by_process")) {
    const auto index = static_cast<uint32_t>(number<uint32_t>(row.at(0)) + first_process);
    sample.by_process[index] = use_from(row, 1);
  }
  return sample;
}

// One file on its way into `memory`.
class FileReader {
 public:
  FileReader(std::string path, HostMemory& memory)
      : path_(std::move(path)), memory_(memory), first_process_(memory.processes.size()) {}

  Status take(std::string_view text) {
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      if (Status status = line(text.substr(0, end)); !status) return status;
      text.remove_prefix(end + 1);
    }
    return Done{};  // without a whole line: its collector was killed when it had made the file
  }

 private:
  Status line(std::string_view text) {
    ++line_;
    const json parsed = json::parse(text, nullptr, false);
    if (!parsed.is_object()) return line_ == 1 ? foreign() : damaged();
    try {
      if (line_ == 1) return header(parsed);
      if (parsed.contains("pid")) return process(parsed);
      HostSample sample = sample_from(parsed, first_process_);
      if (!sample.by_process.empty() &&
          sample.by_process.rbegin()->first >= memory_.processes.size())
        return damaged();
      memory_.samples.push_back(std::move(sample));
    } catch (const json::exception&) {
      return line_ == 1 ? foreign() : damaged();
    }
    return Done{};
  }

  Status header(const json& in) {
    const auto schema = number<uint32_t>(in.at("host_memory"));
    if (schema > kSchema) {
      return Error{ErrorCode::kNewerVersion,
                   path_ + ": schema " + std::to_string(schema) + ", this build reads up to " +
                       std::to_string(kSchema) + "; use a newer fragscope"};
    }
    take_number(in, "interval_ns", memory_.interval_ns);
    return Done{};
  }

  // A known process again: its name changed.
  Status process(const json& in) {
    HostProcess process;
    take_number(in, "pid", process.pid);
    take_number(in, "start_ticks", process.start_ticks);
    take_number(in, "parent", process.parent);
    in.at("name").get_to(process.name);
    const uint64_t index = number<uint32_t>(in.at("process")) + first_process_;
    if (index > memory_.processes.size()) return damaged();
    if (index == memory_.processes.size()) memory_.processes.emplace_back();
    memory_.processes[index] = std::move(process);
    return Done{};
  }

  Error foreign() const {
    return {ErrorCode::kForeign, path_ + ": not a record of host memory of ours"};
  }
  Error damaged() const {
    return {ErrorCode::kDamaged, path_ + ":" + std::to_string(line_) +
                                     ": not a line that a collector writes; what comes before it "
                                     "was read"};
  }

  std::string path_;
  HostMemory& memory_;
  size_t first_process_;
  size_t line_ = 0;
};

}  // namespace

std::string host_memory_file(unsigned number) {
  return number == 1 ? "host.jsonl" : "host." + std::to_string(number) + ".jsonl";
}

void fold(const HostSample& more, HostSample& sample) {
  sample.time_ns = std::max(sample.time_ns, more.time_ns);
  sample.looks += more.looks;
  sample.processes = std::max(sample.processes, more.processes);
  raise(sample.tree, more.tree);
  sample.shm_unlinked = std::max(sample.shm_unlinked, more.shm_unlinked);
  raise(sample.shm_used, more.shm_used);
  raise(sample.shm_total, more.shm_total);
  sample.recorder = std::max(sample.recorder, more.recorder);
  lower(sample.available, more.available);
  raise(sample.cgroup_used, more.cgroup_used);
  lower(sample.cgroup_limit, more.cgroup_limit);
  for (const auto& [process, use] : more.by_process) raise(sample.by_process[process], use);
}

HostSample peak_of(const std::vector<HostSample>& samples) {
  HostSample peak;
  for (const HostSample& sample : samples) fold(sample, peak);
  return peak;
}

std::string host_header_line(uint64_t interval_ns) {
  return line_of({{"host_memory", kSchema}, {"interval_ns", interval_ns}});
}

std::string host_process_line(uint32_t index, const HostProcess& process) {
  return line_of({{"process", index},
                  {"pid", process.pid},
                  {"start_ticks", process.start_ticks},
                  {"parent", process.parent},
                  {"name", process.name}});
}

std::string host_sample_line(const HostSample& sample) {
  json rows = json::array();
  for (const auto& [process, use] : sample.by_process) {
    rows.push_back(json::array({process, use.rss, known(use.pss), known(use.shm)}));
  }
  const HostUse& tree = sample.tree;
  return line_of({{"t_ns", sample.time_ns},
                  {"looks", sample.looks},
                  {"processes", sample.processes},
                  {"tree", json::array({tree.rss, known(tree.pss), known(tree.shm)})},
                  {"shm_unlinked", sample.shm_unlinked},
                  {"shm_used", known(sample.shm_used)},
                  {"shm_total", known(sample.shm_total)},
                  {"recorder", sample.recorder},
                  {"available", known(sample.available)},
                  {"cgroup", json::array({known(sample.cgroup_used), known(sample.cgroup_limit)})},
                  {"by_process", rows}});
}

Result<HostMemory> read_host_memory(const std::string& directory) {
  HostMemory memory;
  for (unsigned number = 1; number <= kMostFiles; ++number) {
    const std::string path = directory + "/" + host_memory_file(number);
    auto source = ByteSource::open_file(path);
    if (!source && source.error().code == ErrorCode::kNotFound) break;
    if (!source) return source.error();
    if (source->size() > kMostBytes) {
      return Error{ErrorCode::kForeign, path + ": too large for a record of ours"};
    }
    const auto bytes = source->read(0, source->size());
    FileReader reader(path, memory);
    Status status = reader.take({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (status) continue;
    if (status.error().code != ErrorCode::kDamaged) return status.error();
    memory.problem = status.error().text;
  }
  return memory;
}

}  // namespace fragscope::trace
