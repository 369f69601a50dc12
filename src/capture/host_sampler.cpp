#include "capture/host_sampler.h"

#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <span>

#include "capture/host_use.h"
#include "capture/process_state.h"

namespace fragscope::capture {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kShortestInterval = 50'000'000;
constexpr uint64_t kEarlyShare = 10;    // of the time passed: the interval at the beginning
constexpr uint64_t kLinesShare = 1000;  // of the time passed: between lines of the file
constexpr uint64_t kCostFactor = 50;    // a look may take this part of the time
constexpr uint64_t kBlockBytes = 512;   // of st_blocks
constexpr unsigned kMostFiles = 1000;   // of one run directory

uint64_t used_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  constexpr uint64_t kSecond = 1'000'000'000;
  return static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
}

bool is_below(const std::string& path, const std::string& directory) {
  return !directory.empty() && path.size() > directory.size() && path.starts_with(directory) &&
         path[directory.size()] == '/';
}

std::string id_of(const struct stat& info) {
  return std::to_string(info.st_dev) + "/" + std::to_string(info.st_ino);
}

// What a file takes of its file system: of one without a name no more is known than how far it is
// mapped.
void add_file(const MappedFile& file, std::map<std::string, uint64_t>& files, uint64_t& unlinked) {
  struct stat info {};
  if (!file.unlinked && ::stat(file.path.c_str(), &info) == 0) {
    files[id_of(info)] = static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
    return;
  }
  uint64_t& bytes = files["unlinked " + file.id];
  if (file.mapped_end <= bytes) return;
  unlinked += file.mapped_end - bytes;
  bytes = file.mapped_end;
}

uint64_t sum_of(const std::map<std::string, uint64_t>& files) {
  uint64_t sum = 0;
  for (const auto& [id, bytes] : files) sum += bytes;
  return sum;
}

// "torch_4711_…": torch names files by the process that made them.
uint32_t maker_of(std::string_view name) {
  constexpr std::string_view kPrefix = "torch_";
  uint32_t pid = 0;
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc() && end != name.data() + name.size() && *end == '_' ? pid : 0;
}

}  // namespace

HostSampler::HostSampler(HostSamplerOptions options)
    : options_(std::move(options)),
      cgroup_mounts_(parse_cgroup_mounts(read_proc("/proc/self/mountinfo").value_or(""))) {}

Status HostSampler::poll(uint64_t now_ns, bool recording) {
  if (refused_ || now_ns < next_look_ns_) return Done{};
  if (first_ns_ == 0) first_ns_ = last_line_ns_ = now_ns;
  const uint64_t used_before = used_cpu_ns();
  trace::fold(look(now_ns), pending_);
  const uint64_t cost = used_cpu_ns() - used_before;
  const uint64_t passed = now_ns - first_ns_;
  const uint64_t early = std::max(kShortestInterval, passed / kEarlyShare);
  next_look_ns_ = now_ns + std::max(std::min(options_.interval_ns, early), cost * kCostFactor);
  if (now_ns - last_line_ns_ < passed / kLinesShare) return Done{};
  last_line_ns_ = now_ns;
  end_line();
  return recording ? write_lines() : Status(Done{});
}

Status HostSampler::finish(bool recording) {
  if (refused_ || !recording) return Done{};
  end_line();
  return write_lines();
}

trace::HostSample HostSampler::look(uint64_t now_ns) {
  trace::HostSample sample;
  sample.time_ns = now_ns;
  sample.looks = 1;
  ShmFiles files;
  const std::vector<uint32_t> tree = process_tree(options_.root, left_out_);
  for (const uint32_t pid : tree) {
    if (pid != static_cast<uint32_t>(::getpid())) look_at(pid, sample, files);
  }
  add_named_files(tree, files);
  sample.processes = sample.by_process.size();
  look_at_file_system(sample);
  look_at_cgroups(tree, sample);
  if (sample.shm_used) sample.tree.shm = sum_of(files.bytes);
  sample.shm_unlinked = files.unlinked;
  if (const auto text = read_proc("/proc/meminfo")) sample.available = parse_available(*text);
  return sample;
}

void HostSampler::look_at(uint32_t pid, trace::HostSample& sample, ShmFiles& all) {
  const auto stat = read_proc_stat(pid);
  const auto resident = resident_bytes(pid);
  if (!stat || !resident) return;
  trace::HostUse use;
  use.rss = *resident;
  const std::string base = "/proc/" + std::to_string(pid);
  if (const auto text = read_proc(base + "/smaps_rollup")) use.pss = parse_pss(*text);
  use.shm = mapped_shm(pid, all);
  const bool first = sample.by_process.empty();
  sample.tree.rss += use.rss;
  // A sum in which one is missing is unknown.
  const bool known = use.pss && (first || sample.tree.pss);
  sample.tree.pss = known ? std::optional(sample.tree.pss.value_or(0) + *use.pss) : std::nullopt;
  const auto parent = static_cast<uint32_t>(stat->parent);
  sample.by_process[index_of(pid, {pid, stat->start_ticks}, parent, stat->name)] = use;
}

uint32_t HostSampler::index_of(uint32_t pid, const Identity& identity, uint32_t parent,
                               const std::string& name) {
  const auto [entry, is_new] = indices_.emplace(identity, static_cast<uint32_t>(processes_.size()));
  if (is_new) {
    processes_.push_back({pid, identity.second, parent, name});
    written_.push_back(false);
  } else if (processes_[entry->second].name != name) {
    processes_[entry->second].name = name;
    written_[entry->second] = false;
  }
  return entry->second;
}

// Files of the recorder and of the simulated GPU are not the process's.
std::optional<uint64_t> HostSampler::mapped_shm(uint32_t pid, ShmFiles& all) const {
  const auto text = read_proc("/proc/" + std::to_string(pid) + "/maps");
  if (!text) return std::nullopt;
  std::map<std::string, uint64_t> own;
  uint64_t unlinked = 0;
  for (const MappedFile& file : parse_mapped_files(*text, options_.shm_directory)) {
    if (is_below(file.path, options_.log_directory)) continue;
    add_file(file, own, unlinked);
    add_file(file, all.bytes, all.unlinked);
  }
  return sum_of(own);
}

// Files that a worker has made and nobody maps at the moment.
void HostSampler::add_named_files(const std::vector<uint32_t>& tree, ShmFiles& all) const {
  std::error_code error;
  for (fs::directory_iterator entry(options_.shm_directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const uint32_t maker = maker_of(entry->path().filename().string());
    if (maker == 0 || std::find(tree.begin(), tree.end(), maker) == tree.end()) continue;
    add_file({"", entry->path().string(), false, 0}, all.bytes, all.unlinked);
  }
}

void HostSampler::look_at_file_system(trace::HostSample& sample) const {
  struct statfs file_system {};
  if (::statfs(options_.shm_directory.c_str(), &file_system) != 0) return;
  const auto unit = static_cast<uint64_t>(file_system.f_bsize);
  sample.shm_total = file_system.f_blocks * unit;
  sample.shm_used = (file_system.f_blocks - file_system.f_bfree) * unit;
  if (!is_below(options_.log_directory, options_.shm_directory)) return;
  std::error_code error;
  for (fs::directory_iterator entry(options_.log_directory, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat info {};
    if (::lstat(entry->path().c_str(), &info) != 0) continue;
    sample.recorder += static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
  }
}

// Processes of one run mostly share a group; each group is looked at once.
void HostSampler::look_at_cgroups(const std::vector<uint32_t>& tree,
                                  trace::HostSample& sample) const {
  std::set<std::string> seen;
  std::optional<CgroupUse> tightest;
  for (const uint32_t pid : tree) {
    if (pid == static_cast<uint32_t>(::getpid())) continue;
    const auto text = read_proc("/proc/" + std::to_string(pid) + "/cgroup");
    if (!text || !seen.insert(*text).second) continue;
    tightest = tighter(tightest, tightest_cgroup(*text, cgroup_mounts_));
  }
  if (!tightest) return;
  sample.cgroup_used = tightest->used;
  sample.cgroup_limit = tightest->limit;
}

void HostSampler::end_line() {
  if (pending_.by_process.empty()) return;
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (written_[i]) continue;
    lines_ += trace::host_process_line(static_cast<uint32_t>(i), processes_[i]);
    written_[i] = true;
  }
  lines_ += trace::host_sample_line(pending_);
  pending_ = {};
}

Status HostSampler::open_file() {
  for (unsigned number = 1; number <= kMostFiles; ++number) {
    const std::string path = options_.run_directory + "/" + trace::host_memory_file(number);
    auto file = TraceFile::create(path);
    if (file) {
      file_ = std::move(file).value();
      lines_ = trace::host_header_line(options_.interval_ns) + lines_;
      return Done{};
    }
    if (::access(path.c_str(), F_OK) != 0) return file.error();
  }
  return Error{ErrorCode::kUnsupported, options_.run_directory + ": too many host.jsonl files"};
}

Status HostSampler::write_lines() {
  if (lines_.empty()) return Done{};
  Status status = file_ ? Status(Done{}) : open_file();
  if (status) status = file_->write(std::as_bytes(std::span(lines_)));
  lines_.clear();
  refused_ = !status.ok();
  return status;
}

}  // namespace fragscope::capture
