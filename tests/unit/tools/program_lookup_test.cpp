#include "tools/program_lookup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::tools;
namespace fs = std::filesystem;

namespace {

// A directory of small executables, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = fs::temp_directory_path() / "fragscope-lookup-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string add(const std::string& name, const std::string& content, mode_t mode = 0755) {
    const std::string path = path_ / name;
    std::ofstream(path) << content;
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    return path;
  }
  std::string path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("a program is found as a shell would find it") {
  Folder first, second;
  first.add("tool", "#!/bin/sh\n", 0644);
  const std::string tool = second.add("tool", "#!/bin/sh\n");
  CHECK(find_program("tool", first.path() + ":" + second.path()).value() == tool);
  CHECK(find_program("tool", first.path()).error().code == ErrorCode::kPermission);
  CHECK(find_program("none", first.path()).error().code == ErrorCode::kNotFound);
  CHECK(find_program(first.path(), "").error().code == ErrorCode::kPermission);
  CHECK(find_program("", "/bin").error().code == ErrorCode::kNotFound);
}

TEST_CASE("the Python behind a command is found through `#!` lines") {
  Folder bin;
  const std::string python = bin.add("python3.11", "");
  const std::string direct = bin.add("direct", "#!" + python + " -u\n");
  bin.add("by-env", "#!/usr/bin/env -S python3.11 -u\n");
  bin.add("nested", "#!" + direct + "\n");
  bin.add("long", "#!/bin/sh\n'''exec' \"" + python + "\" \"$0\" \"$@\"\n' '''\n");
  bin.add("shell", "#!/bin/sh\necho python3.11\n");
  for (const char* name : {"python3.11", "direct", "by-env", "nested", "long"}) {
    CHECK(find_python({name, "train.py"}, bin.path()) == python);
  }
  CHECK_FALSE(find_python({"shell"}, bin.path()));
  CHECK_FALSE(find_python({"missing"}, bin.path()));
  CHECK_FALSE(find_python({}, bin.path()));
}

TEST_CASE("launchers are looked through, other programs' arguments are not") {
  Folder bin;
  const std::string python = bin.add("python3", "");
  bin.add("nice", "");
  bin.add("cat", "");
  CHECK(find_python({"nice", "-n", "5", "python3", "x.py"}, bin.path()) == python);
  CHECK_FALSE(find_python({"cat", "python3"}, bin.path()));
}

TEST_CASE("a dynamically linked program can be preloaded") {
  CHECK_FALSE(why_not_preloadable("/proc/self/exe"));
  Folder bin;
  CHECK_FALSE(why_not_preloadable(bin.add("script", "#!/bin/sh\n")));
  CHECK_FALSE(why_not_preloadable(bin.path() + "/none"));
}
