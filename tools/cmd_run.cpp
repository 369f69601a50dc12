// fragscope run: starts a command under the recorder, drains its logs while it lives, and passes on
// its exit code.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "base/bytes.h"
#include "capture/collector.h"
#include "capture/process_state.h"
#include "enforce/account.h"
#include "simcuda/ledger.h"
#include "tools/command.h"
#include "tools/nothing_recorded.h"
#include "tools/run_command_options.h"
#include "tools/run_limits.h"
#include "tools/run_news.h"
#include "tools/run_origin.h"
#include "tools/run_plan.h"
#include "tools/run_summary.h"
#include "tools/simulation.h"
#include "tools/stale_logs.h"
#include "tools/supervisor.h"
#include "tools/version.h"
#include "trace/run_directory.h"

namespace fragscope::tools {
namespace fs = std::filesystem;
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often logs are drained; a ring of the default size takes far longer to fill.
constexpr milliseconds kPollInterval{20};
// How long recorded descendants that outlive the command are waited for.
constexpr std::chrono::seconds kDescendantGrace{10};
constexpr std::chrono::seconds kTellAfter{1};
// How long descendants that have recorded nothing may take to begin.
constexpr std::chrono::seconds kBeginGrace{1};

int exit_code_of(trace::ProcessExit exit) {
  return exit.kind == trace::ExitKind::signaled ? 128 + exit.code : exit.code;
}

trace::RunInfo describe(const RunOptions& options, const RunPlan& plan) {
  trace::RunInfo info;
  info.fragscope_version = kVersion;
  info.command = options.command;
  info.start_time = utc_text(std::time(nullptr));
  info.host = host_name();
  info.gpu = options.gpu;
  info.notes = plan.notes;
  if (plan.gpu) info.notes["simulation.context_bytes"] = std::to_string(plan.gpu->context_bytes);
  if (plan.gpu && plan.gpu->kernel_us != 0) {
    info.notes["simulation.kernel_us"] = std::to_string(plan.gpu->kernel_us) + " (assumed)";
  }
  return info;
}

std::string default_run_directory(const RunPlan& plan) {
  return fmt::format("fragscope-{}-{}.fsr", fs::path(plan.program).filename().string(), ::getpid());
}

// The parts of one run that have to be undone together.
class Run {
 public:
  Run(const RunOptions& options, RunPlan plan) : options_(options), plan_(std::move(plan)) {}
  ~Run() {
    std::error_code ignored;
    if (ledger_) remove_ledger();
    if (has_account_) fs::remove(account_path(), ignored);
    fs::remove(place_.directory + "/" + kDriverSeenFile, ignored);
    if (place_.in_memory) release_log_directory(owner_, place_.directory);
    if (place_.in_memory) fs::remove(place_.directory, ignored);  // fails while logs are in it
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  int execute();

 private:
  int open_output();
  void open_ledger();
  Status open_account();
  Status open_place_to_group();
  void share(const std::string& path) const;
  void note_simulation();
  void remove_ledger() const;
  std::string ledger_path() const { return place_.directory + "/sim.ledger"; }
  std::string account_path() const { return place_.directory + "/memory.account"; }
  int supervise(Supervisor& supervisor);
  bool keep_waiting(const Supervisor& supervisor);
  void drain();
  void tell_of_stale_logs() const;
  void note_driver_seen();
  void free_what_containers_held();
  void tell(const std::string& line) const {
    if (!options_.quiet) say(line);
  }

  const RunOptions& options_;
  RunPlan plan_;
  std::string directory_;  // as the user wrote it
  LogPlace place_;
  int owner_ = -1;  // descriptor of the word that the log directory is ours
  std::unique_ptr<simcuda::Ledger> ledger_;  // null: no simulated GPU, or no place for it
  bool has_account_ = false;                 // of the memory that all processes hold together
  std::optional<capture::Collector> collector_;
  std::optional<RunNews> news_;
  bool output_failed_ = false;
  std::optional<steady_clock::time_point> command_end_;
  steady_clock::time_point last_freed_{};
  bool told_of_descendants_ = false;
};

int Run::open_output() {
  directory_ = options_.output.empty() ? default_run_directory(plan_) : options_.output;
  std::error_code failed;
  const std::string absolute = fs::absolute(directory_, failed);
  if (!options_.no_record) {
    const Status created = trace::create_run_directory(directory_);
    if (!created.ok()) return fail(created.error(), kExitOutput);
  }
  if (!options_.no_record || plan_.gpu) {
    place_ = choose_log_place({absolute, plan_.log_bytes, options_.durable, plan_.log_group});
  }
  if (const Status opened = open_place_to_group(); !opened) {
    fs::remove_all(directory_, failed);  // ours: it was just created
    return fail(opened.error(), kExitRunFailed);
  }
  if (place_.in_memory && !options_.no_record) {
    tell_of_stale_logs();
    owner_ = hold_log_directory(place_.directory, absolute);
  }
  name_places(plan_.environment, options_, plan_, absolute, place_);
  if (plan_.gpu) open_ledger();
  if (options_.no_record) return kExitOk;
  if (const Status opened = open_account(); !opened) {
    fs::remove_all(directory_, failed);  // ours: it was just created
    return fail(opened.error(), kExitOutput);
  }
  news_.emplace(directory_, plan_.limits);
  constexpr uint64_t kMillisecond = 1'000'000;
  auto collector = capture::Collector::open(
      {absolute, place_.directory, describe(options_, plan_), plan_.max_trace_bytes,
       options_.sample_ms * kMillisecond, static_cast<uint32_t>(::getpid()), true});
  if (!collector.ok()) {
    fs::remove_all(directory_, failed);  // ours: it was just created
    return fail(collector.error(), kExitOutput);
  }
  collector_.emplace(std::move(collector).value());
  return kExitOk;
}

// The place alone: what each process makes in it is its own.
Status Run::open_place_to_group() {
  if (!plan_.log_group) return Done{};
  if (!place_.in_memory) {
    return Error{ErrorCode::kUnsupported,
                 "--log-group: no memory file system that others may enter has room for logs"};
  }
  return share_with_group(place_.directory, *plan_.log_group);
}

void Run::share(const std::string& path) const {
  if (!plan_.log_group) return;
  const Status shared = share_with_group(path, *plan_.log_group);
  if (!shared.ok()) warn(shared.error().text);
}

void Run::tell_of_stale_logs() const {
  if (options_.quiet) return;
  uint64_t bytes = 0;
  for (const StaleLogs& stale : find_stale_logs()) bytes += stale.bytes;
  constexpr uint64_t kWorthAWord = 64ull << 20;
  if (bytes < kWorthAWord) return;
  warn(
      fmt::format("{} of memory hold logs of recorders that were killed; `fragscope collect "
                  "--stale` writes them to their runs and frees it",
                  format_size(bytes)));
}

// Made here and not by the first process that asks for it, whose limits on files may be narrower.
void Run::open_ledger() {
  auto ledger =
      simcuda::Ledger::open(ledger_path().c_str(), plan_.gpu->devices, plan_.gpu->total_bytes);
  if (ledger.ok()) {
    ledger_ = std::move(ledger).value();
    share(ledger_path());
    for (int device = 0; plan_.gpu_used_bytes != 0 && device < plan_.gpu->devices; ++device) {
      ledger_->charge(device, plan_.gpu_used_bytes);  // below the total, and nobody else is there
    }
    set_variable(plan_.environment, simcuda::kLedgerVariable, ledger_path());
  } else if (!options_.quiet) {
    warn(ledger.error().text + "; each process of this run gets a simulated GPU of its own");
  }
}

Status Run::open_account() {
  const bool needed = plan_.limits.scope == enforce::LimitScope::run;
  if (!needed) return Done{};
  const Status made = enforce::create_account(account_path());
  if (!made) return made;
  has_account_ = true;
  share(account_path());
  set_variable(plan_.environment, "FRAGSCOPE_MEMORY_ACCOUNT", account_path());
  return Done{};
}

// The ledger, and what ranks that died left of their meetings beside it.
void Run::remove_ledger() const {
  std::error_code ignored;
  std::vector<fs::path> ours{ledger_path()};
  for (const auto& entry : fs::directory_iterator(place_.directory, ignored)) {
    if (entry.path().string().starts_with(ledger_path() + "-nccl-")) ours.push_back(entry.path());
  }
  for (const fs::path& path : ours) fs::remove(path, ignored);
}

// Where the run may have gone another way than on a card, and which sizes are assumed.
void Run::note_simulation() {
  if (!ledger_) return;
  for (const auto& [key, text] : simulation_notes(*ledger_)) {
    if (collector_) collector_->note(key, text);  // told by info and report
  }
}

// A process that loaded CUDA's driver and asked it for no memory has left word of it.
void Run::note_driver_seen() {
  std::error_code ignored;
  if (!fs::remove(place_.directory + "/" + kDriverSeenFile, ignored)) return;
  plan_.notes[kDriverSeenNote] = "1";
  collector_->note(kDriverSeenNote, "1");
}

// Processes of containers cannot see each other: what one that has ended held of a simulated card
// is told free from here, once a second.
void Run::free_what_containers_held() {
  const auto now = steady_clock::now();
  if (!ledger_ || now - last_freed_ < std::chrono::seconds(1)) return;
  last_freed_ = now;
  ledger_->drop_gone([](uint32_t pid, uint64_t start_ticks) {
    return !capture::process_is_alive(pid, start_ticks);
  });
}

void Run::drain() {
  free_what_containers_held();
  if (!collector_) return;
  const Status polled = collector_->poll();
  for (const capture::Collector::News& news : collector_->take_news())
    news_->tell(news, *collector_);
  if (polled.ok() || output_failed_) return;
  output_failed_ = true;
  warn(polled.error().text + "; the command goes on, its record may end here");
}

// True while descendants of the ended command are worth waiting for.
bool Run::keep_waiting(const Supervisor& supervisor) {
  const uint64_t alive = collector_ ? collector_->live_processes() : 0;
  if (!collector_ || supervisor.asked_to_stop() || !supervisor.has_descendants()) return false;
  const auto now = steady_clock::now();
  if (!command_end_) command_end_ = now;
  if (alive == 0) return now - *command_end_ < kBeginGrace;
  if (!told_of_descendants_ && now - *command_end_ > kTellAfter) {
    told_of_descendants_ = true;
    tell(
        fmt::format("the command has ended; waiting up to {} s for {} recorded process{} of it "
                    "(Ctrl-C: do not wait)",
                    kDescendantGrace.count(), alive, alive == 1 ? "" : "es"));
  }
  return now - *command_end_ < kDescendantGrace;
}

int Run::supervise(Supervisor& supervisor) {
  const auto note = [this](uint32_t pid, trace::ProcessExit exit) {
    if (collector_) collector_->note_exit(pid, exit);
    if (news_) news_->note_exit(pid);
  };
  do {
    supervisor.wait(kPollInterval, note);
    drain();
  } while (!supervisor.ended() || keep_waiting(supervisor));
  while (news_ && news_->explaining() && supervisor.has_descendants() &&
         !supervisor.asked_to_stop()) {
    supervisor.wait(kPollInterval, note);
  }
  const int exit_code = exit_code_of(supervisor.exit());
  note_simulation();
  const std::string zeros = ledger_ && exit_code != kExitOk ? zeros_it_read(*ledger_) : "";
  if (!zeros.empty()) tell(zeros);
  if (!collector_) return exit_code;
  note_driver_seen();
  const auto summary = collector_->finish(supervisor.exit());
  if (!summary.ok()) {
    warn(summary.error().text);
  } else if (!options_.quiet) {
    print_run_summary({directory_, *summary, why_nothing_recorded(plan_.notes, options_.command)});
  }
  return exit_code;
}

int Run::execute() {
  const int opened = open_output();
  if (opened != kExitOk) return opened;
  auto supervisor = Supervisor::start(options_.command, plan_.environment);
  if (supervisor.ok()) return supervise(*supervisor);
  collector_.reset();
  std::error_code ignored;
  if (!options_.no_record) fs::remove_all(directory_, ignored);  // ours, and nothing was run
  switch (supervisor.error().code) {
    case ErrorCode::kNotFound:
      return fail(supervisor.error(), kExitNotFound);
    case ErrorCode::kPermission:
      return fail(supervisor.error(), kExitNotExecutable);
    default:
      return fail(supervisor.error(), kExitRunFailed);
  }
}

int run(const RunOptions& options) {
  if (options.command.empty()) {
    return fail("no command given: fragscope run [options] -- COMMAND [arguments]", kExitUsage);
  }
  auto plan = make_run_plan(options);
  if (const auto* failure = std::get_if<PlanFailure>(&plan)) {
    return fail(failure->error, failure->exit_code);
  }
  return Run(options, std::get<RunPlan>(std::move(plan))).execute();
}

}  // namespace

void add_run_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("run", "Run a command and record its GPU memory");
  const auto options = std::make_shared<RunOptions>();
  add_run_options(*command, *options);
  command->footer("Usage: fragscope run [OPTIONS] -- COMMAND [ARGUMENTS]");
  command->callback([options, &context] {
    options->command = context.command_line;
    context.exit_code = run(*options);
  });
}

}  // namespace fragscope::tools
