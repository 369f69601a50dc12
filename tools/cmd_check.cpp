// fragscope check: can this machine record, and what is missing?
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/bytes.h"
#include "simcuda/sim_config.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/log_place.h"
#include "tools/program_lookup.h"
#include "tools/run_plan.h"
#include "tools/torch_adaptor.h"

namespace fragscope::tools {
namespace {

struct CheckOptions {
  std::string gpu;
  std::string python = "python3";
  bool json = false;
};

enum class State { ok, note, missing };  // note: recording works, with less in it

struct Finding {
  std::string what;
  State state;
  std::string text;
};

const char* state_name(State state) {
  switch (state) {
    case State::ok:
      return "ok";
    case State::note:
      return "note";
    case State::missing:
      return "missing";
  }
  return "?";
}

Finding check_recorder(const Installation& installation) {
  const Status usable = check_shim(installation);
  if (!usable.ok()) return {"recorder", State::missing, usable.error().text};
  return {"recorder", State::ok, installation.shim};
}

Finding check_gpu() {
  const auto reason = why_no_gpu_driver();
  if (!reason) return {"GPU", State::ok, "the driver's libcuda.so.1 can be loaded"};
  return {"GPU", State::note,
          fmt::format("no NVIDIA driver ({}): runs without --gpu are refused", *reason)};
}

// `gpu`: what a run would be given; empty: any.
Finding check_simulation(const std::string& gpu, const Installation& installation) {
  const Status usable = check_stand_ins(installation);
  if (!usable.ok()) return {"simulation", State::missing, usable.error().text};
  if (gpu.empty()) {
    return {"simulation", State::ok, "a card can be simulated: fragscope run --gpu 24GiB -- CMD"};
  }
  const auto card = simcuda::resolve_gpu(gpu);
  if (!card.ok()) return {"simulation", State::missing, card.error().text};
  return {"simulation", State::ok,
          fmt::format("{} x {}, {}", card->devices, card->name, format_size(card->total_bytes))};
}

Finding check_stacks() {
  void* unwind = ::dlopen("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL);
  if (unwind == nullptr) {
    return {"call stacks", State::note,
            "libunwind.so.8 is not there, events will have no stacks (Debian, Ubuntu: apt install "
            "libunwind8)"};
  }
  ::dlclose(unwind);
  return {"call stacks", State::ok, "libunwind.so.8"};
}

Finding check_log_place() {
  const LogPlace place = choose_log_place({".", std::nullopt, false, std::nullopt});
  if (!place.in_memory) {
    return {"logs", State::note,
            fmt::format("{}: logs will lie on disk, in the run directory", place.reason)};
  }
  std::error_code ignored;
  std::filesystem::remove(place.directory, ignored);
  return {"logs", State::ok,
          fmt::format("in memory, below {}, {} for each process",
                      std::filesystem::path(place.directory).parent_path().string(),
                      format_size(place.log_bytes))};
}

// How PyTorch's blocks will be seen with the torch of `python`.
Finding check_torch(const CheckOptions& options, const Installation& installation) {
  const char* path = std::getenv("PATH");
  const auto python = find_program(options.python, path != nullptr ? path : "");
  if (!python.ok()) return {"torch", State::note, python.error().text};
  const auto torch = find_torch(python.value());
  if (!torch.ok()) return {"torch", State::note, torch.error().text};
  if (!torch.value()) {
    return {"torch", State::note,
            fmt::format("{} has none (another one: --python)", python.value())};
  }
  const auto adaptor = ensure_adaptor(
      {installation, *torch.value(), adaptor_directory(), false, [](const std::string& line) {
         if (::isatty(STDERR_FILENO) == 1) say(line);
       }});
  if (!adaptor.ok()) {
    return {"torch", State::note,
            fmt::format("{} in {}: {}; its blocks will be seen without requested sizes and streams",
                        torch.value()->version, torch.value()->directory, adaptor.error().text)};
  }
  return {"torch", State::ok,
          fmt::format("{} in {}, adaptor {}", torch.value()->version, torch.value()->directory,
                      adaptor->path)};
}

struct Verdict {
  bool on_gpu = false;
  bool simulated = false;
};

// Recording needs everything that is `missing` elsewhere, and a device of either kind.
Verdict verdict_of(const std::vector<Finding>& findings) {
  Verdict verdict{true, true};
  for (const Finding& finding : findings) {
    if (finding.what == "GPU") {
      verdict.on_gpu = verdict.on_gpu && finding.state == State::ok;
    } else if (finding.what == "simulation") {
      verdict.simulated = verdict.simulated && finding.state == State::ok;
    } else if (finding.state == State::missing) {
      verdict = {};
      break;
    }
  }
  return verdict;
}

// `gpu`: the only sort of run that was asked about; empty: any.
std::string verdict_text(Verdict verdict, const std::string& gpu) {
  if (!gpu.empty()) {
    return fmt::format("Runs with --gpu {} {} be recorded here.", one_line(gpu),
                       verdict.simulated ? "can" : "cannot");
  }
  if (verdict.on_gpu && verdict.simulated) {
    return "This machine can record, on its GPU and with a simulated one (--gpu).";
  }
  if (verdict.on_gpu) return "This machine can record on its GPU; simulated runs are not possible.";
  if (verdict.simulated) return "This machine can record with a simulated GPU (--gpu) only.";
  return "This machine cannot record.";
}

void print_findings(const std::vector<Finding>& findings, const CheckOptions& options,
                    Verdict verdict) {
  if (!options.json) {
    for (const Finding& finding : findings) {
      fmt::print("{:<8} {:<12} {}\n", state_name(finding.state), finding.what,
                 one_line(finding.text));
    }
    fmt::print("{}\n", verdict_text(verdict, options.gpu));
    return;
  }
  auto list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back(
        {{"what", finding.what}, {"state", state_name(finding.state)}, {"text", finding.text}});
  }
  const Json all = {{"schema", 1},
                    {"can_record", verdict.on_gpu || verdict.simulated},
                    {"can_record_gpu", verdict.on_gpu},
                    {"can_record_simulated", verdict.simulated},
                    {"checks", list}};
  fmt::print("{}", document_text(all));
}

int check(const CheckOptions& options) {
  const Installation installation = find_installation();
  std::vector<Finding> findings = {check_recorder(installation)};
  if (options.gpu.empty()) findings.push_back(check_gpu());
  findings.push_back(check_simulation(options.gpu, installation));
  findings.push_back(check_stacks());
  findings.push_back(check_log_place());
  findings.push_back(check_torch(options, installation));
  Verdict verdict = verdict_of(findings);
  if (!options.gpu.empty()) verdict.on_gpu = false;  // not looked at
  print_findings(findings, options, verdict);
  return verdict.on_gpu || verdict.simulated ? kExitOk : kExitNo;
}

}  // namespace

void add_check_command(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("check", "Tell whether this machine can record, and what is missing");
  const auto options = std::make_shared<CheckOptions>();
  command->add_option("--gpu", options->gpu, "Check for runs with this simulated GPU only")
      ->check([](const std::string& text) { return text.empty() ? "must not be empty" : ""; });
  command->add_option("--python", options->python, "Interpreter whose torch is looked at");
  command->add_flag("--json", options->json, "As JSON");
  command->callback([options, &context] { context.exit_code = check(*options); });
}

}  // namespace fragscope::tools
