#include "capture/host_sampler.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/unit/capture/capture_fixture.h"

using namespace fragscope;
using namespace fragscope::capture;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr size_t kFileBytes = 1 << 20;

struct Place {
  std::string run = "/tmp/fragscope-sampler-XXXXXX";
  std::string shm = "/dev/shm/fragscope-sampler-XXXXXX";
  Place() {
    REQUIRE(::mkdtemp(run.data()) != nullptr);
    REQUIRE(::mkdtemp(shm.data()) != nullptr);
    fs::create_directory(shm + "/logs");
  }
  ~Place() {
    fs::remove_all(run);
    fs::remove_all(shm);
  }
  HostSampler sampler(uint64_t interval_ns = kSecond) const {
    return HostSampler({run, shm + "/logs", shm, interval_ns, static_cast<uint32_t>(::getpid())});
  }
  trace::HostMemory read() const {
    auto memory = trace::read_host_memory(run);
    REQUIRE(memory.ok());
    REQUIRE(memory->problem.empty());
    return std::move(memory).value();
  }
};

void* map_file(const std::string& path, bool keep_name) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0 || ::ftruncate(fd, kFileBytes) != 0) ::_exit(1);
  void* const at = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::memset(at, 1, kFileBytes);
  ::close(fd);
  if (!keep_name) ::unlink(path.c_str());
  return at;
}

}  // namespace

TEST_CASE("a worker without CUDA: its memory, its files with and without a name") {
  const Place place;
  capture_test::Child child([&](auto step) {
    map_file(place.shm + "/unnamed", false);
    map_file(place.shm + "/named", true);
    map_file(place.shm + "/logs/recorder", true);
    const std::string made = place.shm + "/torch_" + std::to_string(::getpid()) + "_1";
    ::munmap(map_file(made, true), kFileBytes);
    step();
  });
  child.wait_for_step();
  HostSampler sampler = place.sampler();
  REQUIRE(sampler.poll(5 * kSecond, true).ok());
  const trace::HostMemory memory = place.read();
  REQUIRE(memory.samples.size() == 1);
  const trace::HostSample& sample = memory.samples[0];
  CHECK(sample.time_ns == 5 * kSecond);
  CHECK(sample.processes == 1);  // this process is the collector
  REQUIRE(memory.processes.size() == 1);
  CHECK(memory.processes[0].pid == child.pid());
  CHECK(memory.processes[0].parent == static_cast<uint32_t>(::getpid()));
  const trace::HostUse& use = sample.by_process.at(0);
  CHECK(use.rss > 3 * kFileBytes);
  CHECK(use.shm == 2 * kFileBytes);
  CHECK(sample.tree.shm == 3 * kFileBytes);  // and what nobody maps at the moment
  CHECK(sample.shm_unlinked == kFileBytes);
  CHECK(sample.recorder == kFileBytes);
  CHECK(sample.shm_used.value_or(0) >= 4 * kFileBytes);
  CHECK(sample.available.value_or(0) > 0);
  child.go_on();
  child.reap();
}

TEST_CASE("a child of the recorder's own is no process of the command") {
  const Place place;
  capture_test::Child ours([&](auto step) { step(); });
  capture_test::Child worker([&](auto step) { step(); });
  ours.wait_for_step();
  worker.wait_for_step();
  HostSampler sampler = place.sampler();
  sampler.leave_out(ours.pid());
  REQUIRE(sampler.poll(1 * kSecond, true).ok());
  REQUIRE(place.read().processes.size() == 1);
  CHECK(place.read().processes[0].pid == worker.pid());
  sampler.forget(ours.pid());  // its number is another process's now
  REQUIRE(sampler.poll(100 * kSecond, true).ok());
  CHECK(place.read().processes.size() == 2);
  ours.go_on();
  worker.go_on();
  ours.reap();
  worker.reap();
}

TEST_CASE("looks: denser at first, and what a file was not told waits for the next line") {
  const Place place;
  capture_test::Child child([&](auto step) { step(); });
  child.wait_for_step();
  HostSampler sampler = place.sampler(kSecond * 1000);
  REQUIRE(sampler.poll(1 * kSecond, true).ok());
  CHECK(place.read().samples.size() == 1);
  REQUIRE(sampler.poll(1 * kSecond + 1, true).ok());  // too early
  CHECK(place.read().samples.size() == 1);
  REQUIRE(sampler.poll(1000 * kSecond, true).ok());
  CHECK(place.read().samples.size() == 2);
  child.go_on();
  child.reap();
  REQUIRE(sampler.poll(100'000 * kSecond, true).ok());  // nobody is left
  REQUIRE(sampler.finish(true).ok());
  CHECK(place.read().samples.size() == 2);
}

TEST_CASE("a second collector of a run writes a file of its own") {
  const Place place;
  capture_test::Child child([&](auto step) { step(); });
  child.wait_for_step();
  HostSampler first = place.sampler();
  HostSampler second = place.sampler();
  REQUIRE(first.poll(1 * kSecond, true).ok());
  REQUIRE(second.poll(2 * kSecond, true).ok());
  CHECK(place.read().samples.size() == 2);
  CHECK(fs::exists(place.run + "/host.2.jsonl"));
  child.go_on();
  child.reap();
}

TEST_CASE("a directory that takes no file is told of once") {
  const Place place;
  capture_test::Child child([&](auto step) { step(); });
  child.wait_for_step();
  HostSampler sampler(
      {place.run + "/gone", "", place.shm, kSecond, static_cast<uint32_t>(::getpid())});
  CHECK_FALSE(sampler.poll(1 * kSecond, true).ok());
  CHECK(sampler.poll(100 * kSecond, true).ok());
  CHECK(sampler.finish(true).ok());
  child.go_on();
  child.reap();
}

TEST_CASE("what was seen before a process recorded is written then, and nothing when none does") {
  const Place place;
  capture_test::Child child([&](auto step) { step(); });
  child.wait_for_step();
  HostSampler sampler = place.sampler();
  REQUIRE(sampler.poll(1 * kSecond, false).ok());
  REQUIRE(sampler.poll(100 * kSecond, false).ok());
  REQUIRE(sampler.finish(false).ok());
  CHECK(fs::is_empty(place.run));
  REQUIRE(sampler.poll(1000 * kSecond, true).ok());
  CHECK(place.read().samples.size() == 3);
  child.go_on();
  child.reap();
}
