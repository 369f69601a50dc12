#include "trace/host_memory.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::trace;

namespace {

struct Directory {
  std::string path = "/tmp/fragscope-host-XXXXXX";
  Directory() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Directory() { std::filesystem::remove_all(path); }
  void write(unsigned number, const std::string& text) const {
    std::ofstream(path + "/" + host_memory_file(number), std::ios::binary) << text;
  }
};

HostSample sample(uint64_t time_ns, uint64_t rss, std::optional<uint64_t> pss) {
  HostSample made;
  made.time_ns = time_ns;
  made.looks = 1;
  made.processes = 1;
  made.tree = {rss, pss, 3};
  made.shm_used = 10;
  made.shm_total = 100;
  made.available = 1000 - rss;
  made.cgroup_used = rss + 1;
  if (pss) made.cgroup_limit = 500 - *pss;
  made.by_process[0] = {rss, pss, std::nullopt};
  return made;
}

const HostProcess kWorker{17, 4711, 16, "pt_data_worker"};

}  // namespace

TEST_CASE("what was written is read") {
  const Directory directory;
  directory.write(1, host_header_line(5) + host_process_line(0, kWorker) +
                         host_sample_line(sample(1, 10, 7)) +
                         host_sample_line(sample(2, 20, std::nullopt)));
  const auto read = read_host_memory(directory.path);
  REQUIRE(read.ok());
  CHECK(read->problem.empty());
  CHECK(read->interval_ns == 5);
  REQUIRE(read->processes.size() == 1);
  CHECK(read->processes[0].pid == 17);
  CHECK(read->processes[0].start_ticks == 4711);
  CHECK(read->processes[0].parent == 16);
  CHECK(read->processes[0].name == "pt_data_worker");
  REQUIRE(read->samples.size() == 2);
  CHECK(read->samples[0].tree.pss == 7u);
  CHECK(read->samples[0].by_process.at(0).rss == 10);
  CHECK_FALSE(read->samples[0].by_process.at(0).shm);
  CHECK_FALSE(read->samples[1].tree.pss);
  CHECK(read->samples[1].available == 980u);
  CHECK(read->samples[0].cgroup_used == 11u);
  CHECK(read->samples[0].cgroup_limit == 493u);
  CHECK_FALSE(read->samples[1].cgroup_limit);
}

TEST_CASE("a peak is the most of each figure, and the least that was left") {
  const HostSample peak = peak_of({sample(1, 20, 7), sample(2, 10, 9), sample(3, 5, std::nullopt)});
  CHECK(peak.looks == 3);
  CHECK(peak.time_ns == 3);
  CHECK(peak.tree.rss == 20);
  CHECK(peak.tree.pss == 9u);
  CHECK(peak.available == 980u);
  CHECK(peak.cgroup_used == 21u);
  CHECK(peak.cgroup_limit == 491u);
  CHECK(peak.by_process.at(0).rss == 20);
}

TEST_CASE("files of several collectors are one record") {
  const Directory directory;
  directory.write(
      1, host_header_line(5) + host_process_line(0, kWorker) + host_sample_line(sample(1, 10, 7)));
  HostProcess other = kWorker;
  other.pid = 18;
  directory.write(
      2, host_header_line(5) + host_process_line(0, other) + host_sample_line(sample(2, 20, 7)));
  const auto read = read_host_memory(directory.path);
  REQUIRE(read.ok());
  REQUIRE(read->processes.size() == 2);
  CHECK(read->processes[1].pid == 18);
  CHECK(read->samples[1].by_process.at(1).rss == 20);
}

TEST_CASE("a file of before control groups were looked at") {
  const Directory directory;
  std::string old = host_sample_line(sample(1, 10, 7));
  const size_t at = old.find("\"cgroup\":");
  REQUIRE(at != std::string::npos);
  old.erase(at, old.find("],", at) + 2 - at);
  directory.write(1, host_header_line(5) + host_process_line(0, kWorker) + old);
  const auto read = read_host_memory(directory.path);
  REQUIRE(read.ok());
  CHECK(read->problem.empty());
  REQUIRE(read->samples.size() == 1);
  CHECK_FALSE(read->samples[0].cgroup_limit);
}

TEST_CASE("a cut line is left out, a damaged one ends reading, with a word") {
  const Directory directory;
  const std::string start = host_header_line(5) + host_process_line(0, kWorker);
  const std::string line = host_sample_line(sample(1, 10, 7));
  directory.write(1, start + line + line.substr(0, line.size() / 2));
  auto read = read_host_memory(directory.path);
  REQUIRE(read.ok());
  CHECK(read->problem.empty());
  CHECK(read->samples.size() == 1);

  directory.write(1, start + line + "{\"t_ns\": -1}\n" + line);
  read = read_host_memory(directory.path);
  REQUIRE(read.ok());
  CHECK(read->problem.find("host.jsonl:4: ") != std::string::npos);
  CHECK(read->samples.size() == 1);

  directory.write(1, host_header_line(5) + line);  // of a process that nobody named
  read = read_host_memory(directory.path);
  REQUIRE(read.ok());
  CHECK_FALSE(read->problem.empty());
}

TEST_CASE("a number that is none of a size ends reading, with a word") {
  const Directory directory;
  const std::string start = host_header_line(5) + host_process_line(0, kWorker);
  const std::string line = host_sample_line(sample(1, 10, 7));
  const std::string number = GENERATE("-1", "1.5", "1e30", "18446744073709551616", "true", "[1]");
  const std::string key = GENERATE("\"t_ns\":", "\"looks\":", "\"shm_used\":", "\"tree\":[",
                                   "\"cgroup\":[", "\"by_process\":[[");
  std::string changed = line;
  const size_t at = changed.find(key) + key.size();
  REQUIRE(at >= key.size());
  changed.replace(at, changed.find_first_of(",}]", at) - at, number);
  directory.write(1, start + line + changed + line);
  const auto read = read_host_memory(directory.path);
  REQUIRE(read.ok());
  CHECK(read->samples.size() == 1);
  CHECK(read->problem.find("host.jsonl:4: ") != std::string::npos);
}

TEST_CASE("no file, another's file, a newer one") {
  const Directory directory;
  auto read = read_host_memory(directory.path);
  REQUIRE(read.ok());
  CHECK(read->samples.empty());
  directory.write(1, "[1, 2]\n");
  CHECK(read_host_memory(directory.path).error().code == ErrorCode::kForeign);
  directory.write(1, "");
  CHECK(read_host_memory(directory.path)->samples.empty());
  directory.write(1, "{\"host_memory\": 2, \"interval_ns\": 5}\n");
  CHECK(read_host_memory(directory.path).error().code == ErrorCode::kNewerVersion);
}
