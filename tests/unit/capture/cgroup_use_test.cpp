#include "capture/cgroup_use.h"

#include <filesystem>
#include <fstream>

#include "tests/unit/capture/capture_fixture.h"

using namespace fragscope::capture;
namespace fs = std::filesystem;

namespace {

// A hierarchy of groups as the kernel shows one, on disk.
struct Hierarchy {
  fragscope::log_test::TemporaryDirectory temporary{"cgroup"};
  std::string point = temporary.path;

  void write(const std::string& group, const std::string& file, const std::string& text) const {
    fs::create_directories(point + group);
    std::ofstream(point + group + "/" + file) << text << "\n";
  }
  std::vector<CgroupMount> mounts(int version, const std::string& root = "/") const {
    return {{version, root, point}};
  }
};

}  // namespace

TEST_CASE("mounts that account for memory, of both kinds") {
  const auto mounts = parse_cgroup_mounts(
      "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
      "35 31 0:32 /docker/7f /sys/fs/cgroup/me\\040mory rw - cgroup cgroup rw,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
      "no mount\n");
  REQUIRE(mounts.size() == 2);
  CHECK(mounts[0].version == 1);
  CHECK(mounts[0].root == "/docker/7f");
  CHECK(mounts[0].point == "/sys/fs/cgroup/me mory");
  CHECK(mounts[1].version == 2);
  CHECK(mounts[1].point == "/sys/fs/cgroup/unified");
}

TEST_CASE("the limit that counts is the tightest on the way up") {
  const Hierarchy groups;
  groups.write("/job", "memory.current", "900");
  groups.write("/job", "memory.max", "1000");
  groups.write("/job", "memory.stat", "anon 5\ninactive_file 100\n");
  groups.write("/job/step", "memory.current", "300");
  groups.write("/job/step", "memory.max", "5000");
  groups.write("/free", "memory.current", "70");
  groups.write("/free", "memory.max", "max");
  const auto use = tightest_cgroup("4:memory:/elsewhere\n0::/job/step\n", groups.mounts(2));
  REQUIRE(use);
  CHECK(use->limit == 1000u);
  CHECK(use->used == 800u);  // page cache goes when it is in the way
  const auto unlimited = tightest_cgroup("0::/free\n", groups.mounts(2));
  REQUIRE(unlimited);
  CHECK(unlimited->used == 70u);
  CHECK_FALSE(unlimited->limit);
  CHECK_FALSE(tightest_cgroup("0::/nothing\n", groups.mounts(2)));
  CHECK_FALSE(tightest_cgroup("", groups.mounts(2)));
}

TEST_CASE("the old kind: a number for no limit, a mount of a container's own group") {
  const Hierarchy groups;
  groups.write("", "memory.usage_in_bytes", "40");
  groups.write("", "memory.limit_in_bytes", "64");
  groups.write("", "memory.stat", "inactive_file 1\ntotal_inactive_file 30\n");
  groups.write("/inner", "memory.usage_in_bytes", "7");
  groups.write("/inner", "memory.limit_in_bytes", "9223372036854771712");
  const std::string inside = "4:cpu,memory:/docker/7f/inner\n0::/\n";
  const auto use = tightest_cgroup(inside, groups.mounts(1, "/docker/7f"));
  REQUIRE(use);
  CHECK(use->limit == 64u);
  CHECK(use->used == 10u);
  // A group that this mount does not show: the mount itself is what is known.
  CHECK(tightest_cgroup("4:memory:/other\n", groups.mounts(1, "/docker/7f"))->limit == 64u);
}

TEST_CASE("of several groups the one with less room counts") {
  const CgroupUse wide{10, 1000};
  const CgroupUse narrow{90, 100};
  const CgroupUse open{5000, std::nullopt};
  CHECK(tighter(wide, narrow)->limit == 100u);
  CHECK(tighter(narrow, wide)->limit == 100u);
  CHECK(tighter(open, wide)->limit == 1000u);
  CHECK(tighter(std::nullopt, open)->used == 5000u);
  CHECK_FALSE(tighter(std::nullopt, std::nullopt));
}
