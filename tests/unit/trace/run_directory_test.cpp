#include "trace/run_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::trace;
namespace fs = std::filesystem;

namespace {

struct TemporaryDirectory {
  fs::path path = fs::temp_directory_path() / ("fs-run-" + std::to_string(::getpid()));
  TemporaryDirectory() { fs::create_directory(path); }
  ~TemporaryDirectory() { fs::remove_all(path); }
};

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

ErrorCode error_of(const fs::path& directory, const std::string& text) {
  std::ofstream(directory / "run.json") << text;
  const auto info = read_run_info(directory);
  REQUIRE_FALSE(info.ok());
  CHECK(info.error().text.find("run.json") != std::string::npos);
  return info.error().code;
}

}  // namespace

TEST_CASE("run directories are private whatever the umask is") {
  TemporaryDirectory temporary;
  const std::string run = temporary.path / "a.fsr";
  const mode_t before = ::umask(0777);
  const bool created = create_run_directory(run).ok() && write_run_info(run, RunInfo{}).ok();
  ::umask(before);
  REQUIRE(created);
  CHECK(mode_of(run) == 0700);
  CHECK(mode_of(run + "/run.json") == 0600);
  CHECK(create_run_directory(run).error().code == ErrorCode::kInvalidArgument);
  CHECK(create_run_directory(temporary.path / "no" / "b.fsr").error().code == ErrorCode::kNotFound);
  fs::create_directory(temporary.path / "empty");
  CHECK(create_run_directory(temporary.path / "empty").ok());
  std::ofstream(temporary.path / "file") << "x";
  CHECK(create_run_directory(temporary.path / "file").error().code == ErrorCode::kInvalidArgument);
}

TEST_CASE("run.json comes back as it was written") {
  TemporaryDirectory temporary;
  RunInfo info;
  info.fragscope_version = "0.1.0";
  info.command = {"python", "train me.py", "--x=\"1\"", ""};
  info.start_time = "2026-01-02T03:04:05Z";
  info.host = "host";
  info.gpu = "12GiB";
  info.log_directory = "/dev/shm/x";
  info.exit = {ExitKind::exited, 3};
  info.notes = {{"a", "b\nc"}};
  info.processes = {{7, 99, "7-99-ab.fst", {ExitKind::signaled, 9}},
                    {8, UINT64_MAX, "8.fst", {ExitKind::vanished, 0}},
                    {9, 1, "", {ExitKind::running, 0}}};
  for (const bool sealed : {false, true}) {
    info.sealed = sealed;
    REQUIRE(write_run_info(temporary.path, info).ok());
    const auto read = read_run_info(temporary.path);
    REQUIRE(read.ok());
    CHECK(read->command == info.command);
    CHECK(read->start_time == info.start_time);
    CHECK(read->host == info.host);
    CHECK(read->gpu == info.gpu);
    CHECK(read->log_directory == info.log_directory);
    CHECK(read->fragscope_version == info.fragscope_version);
    CHECK(read->notes == info.notes);
    CHECK(read->sealed == sealed);
    CHECK(read->exit.kind == ExitKind::exited);
    CHECK(read->exit.code == 3);
    REQUIRE(read->processes.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(read->processes[i].pid == info.processes[i].pid);
      CHECK(read->processes[i].start_ticks == info.processes[i].start_ticks);
      CHECK(read->processes[i].trace_file == info.processes[i].trace_file);
      CHECK(read->processes[i].exit.kind == info.processes[i].exit.kind);
      CHECK(read->processes[i].exit.code == info.processes[i].exit.code);
    }
  }
  // Nothing is left beside it.
  CHECK(std::distance(fs::directory_iterator(temporary.path), fs::directory_iterator()) == 1);
}

TEST_CASE("arguments that are not UTF-8 do not prevent run.json") {
  TemporaryDirectory temporary;
  RunInfo info;
  info.command = {"a\xff"};
  REQUIRE(write_run_info(temporary.path, info).ok());
  CHECK(read_run_info(temporary.path)->command.at(0) == "a\xef\xbf\xbd");
}

TEST_CASE("a run.json that is not ours") {
  TemporaryDirectory temporary;
  CHECK(read_run_info(temporary.path).error().code == ErrorCode::kNotFound);
  CHECK(error_of(temporary.path, "") == ErrorCode::kDamaged);
  CHECK(error_of(temporary.path, "[1]") == ErrorCode::kDamaged);
  CHECK(error_of(temporary.path, "{\"schema\": 1") == ErrorCode::kDamaged);
  CHECK(error_of(temporary.path, "{}") == ErrorCode::kForeign);
  CHECK(error_of(temporary.path, "{\"schema\": \"1\"}") == ErrorCode::kForeign);
  CHECK(error_of(temporary.path, "{\"schema\": 2}") == ErrorCode::kNewerVersion);
  CHECK(error_of(temporary.path, "{\"schema\": 1}") == ErrorCode::kDamaged);
  CHECK(error_of(temporary.path, std::string(100000, '[')) == ErrorCode::kDamaged);
  REQUIRE(write_run_info(temporary.path, RunInfo{}).ok());
  std::ifstream in(temporary.path / "run.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string empty_list = "\"processes\": []";
  REQUIRE(text.find(empty_list) != std::string::npos);
  text.replace(text.find(empty_list), empty_list.size(),
               "\"processes\": [{\"pid\": 1, \"start_ticks\": 2, \"trace_file\": \"../x.fst\", "
               "\"exit\": {\"kind\": \"exited\", \"code\": 0}}]");
  CHECK(error_of(temporary.path, text) == ErrorCode::kDamaged);
}
