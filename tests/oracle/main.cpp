// The oracle of one torch release: runs command lists on the real allocator (`run`), or compares it
// with the model on random lists (`fuzz`). Started by tests/oracle/run and tests/oracle/fuzz, which
// set PYTORCH_CUDA_ALLOC_CONF and the library paths.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "model/command_json.h"
#include "model/command_runner.h"
#include "tests/oracle/compare.h"
#include "tests/oracle/library_target.h"
#include "tests/oracle/pool_walks.h"
#include "tests/oracle/speed.h"
#include "tests/support/answer_digest.h"
#include "tests/support/golden_commands.h"
#include "tests/support/list_options.h"

using namespace fragscope;
using namespace fragscope::model;

namespace {

const VersionProfile& profile() { return version_profile(ORACLE_TORCH); }

std::string environment_settings() {
  const char* text = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  return text == nullptr ? "" : text;
}

// What the model is given: the same, unless a test wants to see a difference.
std::string model_settings() {
  const char* text = std::getenv("FRAGSCOPE_ORACLE_MODEL_SETTINGS");
  return text == nullptr ? environment_settings() : text;
}

// Before the first CUDA call of the process.
void set_device_memory(uint64_t bytes, int devices) {
  const std::string text = "devices=" + std::to_string(devices) +
                           ";total_bytes=" + std::to_string(bytes) + ";context_bytes=0";
  setenv("FRAGSCOPE_SIM", text.c_str(), 1);
}

bool read_file(const std::string& path, std::string& into) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
  } else {
    std::ifstream file(path);
    if (!file) return false;
    text << file.rdbuf();
  }
  into = text.str();
  return true;
}

enum class Answer { kJson, kAnnotated, kDigest };

// Runs a list; as JSON, as the list with the answers between its lines, or as a fingerprint.
int run_file(const std::string& path, uint64_t memory, Answer answer) {
  std::string text;
  if (!read_file(path, text)) {
    std::cerr << "oracle: cannot read " << path << "\n";
    return 3;
  }
  const test::GoldenFile golden = test::read_golden(text);
  const auto list = parse_commands(answer == Answer::kAnnotated ? golden.commands : text, path);
  if (!list) {
    std::cerr << "oracle: " << list.error().text << "\n";
    return 3;
  }
  if (memory == 0) memory = list.value().capacity.value_or(kDefaultDeviceMemory);
  set_device_memory(memory, list.value().devices);
  const auto target = oracle::make_library_target(list.value().devices);
  const ListResult result = run_commands(list.value(), *target);
  if (answer == Answer::kAnnotated) std::cout << test::annotate(golden, result, profile());
  if (answer == Answer::kDigest) {
    std::cout << test::line_digests(test::normal_lines(result, profile())) << "\n";
  }
  if (answer != Answer::kJson) return 0;
  const oracle::MappedLibrary library = oracle::mapped_library();
  std::cout << list_result_json(result, profile(),
                                {{"torch", ORACLE_TORCH},
                                 {"allocator", "libc10_cuda"},
                                 {"library", library.path},
                                 {"build_id", library.build_id}});
  return 0;
}

// What the model makes of settings, one string a line on stdin: the error, or the fingerprint of
// its answers to the list.
int expect(const std::string& path) {
  std::string text;
  if (!read_file(path, text)) return 3;
  const auto list = parse_commands(text, path);
  if (!list) return 3;
  for (std::string settings; std::getline(std::cin, settings);) {
    const auto config = parse_config(settings, profile());
    if (!config) {
      std::cout << "error " << config.error().text.substr(0, config.error().text.find('\n'))
                << "\n";
      continue;
    }
    const auto model =
        make_model_target(list.value(), config.value(), profile(), kDefaultDeviceMemory);
    const ListResult result = run_commands(list.value(), *model);
    std::cout << "ok " << test::line_digests(test::normal_lines(result, profile())) << "\n";
  }
  return 0;
}

// Without the commands from which on PyTorch itself reads freed memory.
void cut_undefined(CommandList& list, const ListResult& by_model) {
  if (!by_model.undefined_from_line) return;
  std::erase_if(list.commands,
                [&](const Command& c) { return c.line >= *by_model.undefined_from_line; });
}

// The difference between both on one list, computed in a process of its own.
std::string compare_here(const std::vector<std::string>& lines, uint64_t memory) {
  auto list = parse_commands(test::join_lines(lines), "list");
  if (!list) return "bad list: " + list.error().text;
  const auto config = parse_config(model_settings(), profile());
  if (!config) return "bad settings: " + config.error().text;
  set_device_memory(memory, list.value().devices);
  const auto by_model = [&] {
    const auto model = make_model_target(list.value(), config.value(), profile(), memory);
    return run_commands(list.value(), *model);
  };
  ListResult ours = by_model();
  if (ours.undefined_from_line) {
    cut_undefined(list.value(), ours);
    ours = by_model();
  }
  const auto library = oracle::make_library_target(list.value().devices);
  const ListResult theirs = run_commands(list.value(), *library);
  return oracle::first_difference(ours, theirs, profile());
}

std::string compare(const std::vector<std::string>& lines, uint64_t memory) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe failed";
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const std::string difference = compare_here(lines, memory);
    size_t done = 0;
    while (done < difference.size()) {
      const ssize_t n = write(ends[1], difference.data() + done, difference.size() - done);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) text += "the process ended with status " + std::to_string(status);
  return text;
}

struct FuzzOptions : test::ListOptions {
  uint64_t seed = 1;
  uint64_t lists = 100;
  uint64_t memory = 0;
  std::string keep;  // directory for failing lists
};

std::vector<std::string> make_list(const FuzzOptions& options, uint64_t seed) {
  return test::make_list(options, profile(), seed);
}

// One list as text, for tests/golden/oracle.
int print_list(const FuzzOptions& options) {
  if (options.host || options.strings) {
    std::cout << test::join_lines(make_list(options, options.seed));
    return 0;
  }
  test::ListShape shape = test::shape_of(options, profile());
  shape.scope_streams = true;  // so that every release can read it
  std::cout << test::join_lines(test::ListMaker(options.seed, shape).make());
  return 0;
}

int fuzz(const FuzzOptions& options) {
  uint64_t failures = 0;
  for (uint64_t i = 0; i < options.lists; ++i) {
    const uint64_t seed = options.seed + i;
    uint64_t memory = options.memory;
    if (memory == 0) memory = test::memory_of_list(seed);
    const auto lines = make_list(options, seed);
    if (compare(lines, memory).empty()) continue;
    ++failures;
    const auto small =
        test::shrink_lines(lines, [&](const auto& some) { return !compare(some, memory).empty(); });
    std::cout << "seed " << seed << ", torch " << ORACLE_TORCH << ", settings '"
              << environment_settings() << "', memory " << memory << "\n"
              << compare(small, memory) << test::join_lines(small) << std::flush;
    if (!options.keep.empty()) {
      std::ofstream(options.keep + "/torch" + ORACLE_TORCH + "-" + std::to_string(seed) + ".txt")
          << "# torch " << ORACLE_TORCH << ", settings " << environment_settings() << "\n"
          << "capacity " << memory << "\n"
          << test::join_lines(small);
    }
    if (failures >= 3) break;
  }
  std::cout << "torch " << ORACLE_TORCH << " '" << environment_settings() << "': " << options.lists
            << " lists, " << options.lists * options.commands << " commands, " << failures
            << " differences\n";
  return failures == 0 ? 0 : 1;
}

int speed(const std::string& path, const FuzzOptions& options) {
  std::string text;
  if (!read_file(path, text)) {
    std::cerr << "oracle: cannot read " << path << "\n";
    return 3;
  }
  const auto list = parse_commands(text, path);
  if (!list) {
    std::cerr << "oracle: " << list.error().text << "\n";
    return 3;
  }
  const uint64_t memory = options.memory != 0 ? options.memory : kDefaultDeviceMemory;
  set_device_memory(memory, 1);
  return oracle::compare_speed(list.value(), profile(), memory,
                               static_cast<unsigned>(options.lists));
}

}  // namespace

static int run_mode(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  FuzzOptions options;
  std::string file;
  const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  for (size_t i = 0; i < words.size(); ++i) {
    const auto number = [&] {
      return i + 1 < words.size() ? std::strtoull(words[++i].c_str(), nullptr, 10) : 0;
    };
    if (words[i] == "--seed") {
      options.seed = number();
    } else if (words[i] == "--lists") {
      options.lists = number();
    } else if (words[i] == "--memory") {
      options.memory = number();
    } else if (words[i] == "--keep" && i + 1 < words.size()) {
      options.keep = words[++i];
    } else if (!test::take_list_option(words, i, options)) {
      file = words[i];
    }
  }
  if (mode == "run" && !file.empty()) return run_file(file, options.memory, Answer::kJson);
  if (mode == "annotate" && !file.empty()) {
    return run_file(file, options.memory, Answer::kAnnotated);
  }
  if (mode == "digest" && !file.empty()) return run_file(file, options.memory, Answer::kDigest);
  if (mode == "expect" && !file.empty()) return expect(file);
  if (mode == "speed" && !file.empty()) return speed(file, options);
  if (mode == "list") return print_list(options);
  if (mode == "pool-walks") {
    oracle::print_pool_walks();
    return 0;
  }
  if (mode == "fuzz") return fuzz(options);
  std::cerr << "usage: oracle run|annotate FILE [--memory BYTES] | oracle fuzz [--seed N] [--lists "
               "N] …\n";
  return 2;
}

// Without the libraries' own ends: the pinned allocator's background thread of 2.6 never stops.
int main(int argc, char** argv) {
  const int code = run_mode(argc, argv);
  std::cout << std::flush;
  std::_Exit(code);
}
