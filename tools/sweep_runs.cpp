#include "tools/sweep_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>

#include "diagnose/budget.h"
#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "tools/command.h"
#include "tools/host_memory_data.h"
#include "tools/json_text.h"
#include "tools/run_analysis.h"
#include "tools/subprocess.h"

namespace fragscope::tools {
namespace {

namespace fs = std::filesystem;

// Letters, digits and a few signs: a value may be anything, a file name may not.
std::string file_part(const std::string& value) {
  std::string part;
  for (const char c : value) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '-' || c == '_';
    part += plain ? c : '_';
  }
  return part.substr(0, 40);
}

std::optional<double> last_match(const std::string& text, const std::regex& expression) {
  std::optional<double> value;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end;
       ++match) {
    const std::string number = (*match)[1].str();
    double parsed = 0;
    const char* stop = number.data() + number.size();
    const auto result = std::from_chars(number.data(), stop, parsed);
    if (result.ec == std::errc() && result.ptr == stop) value = parsed;
  }
  return value;
}

std::optional<uint64_t> figure(const diagnose::RunFigures& figures, diagnose::BudgetFigure which) {
  const auto& value = figures[static_cast<size_t>(which)];
  if (!value) return std::nullopt;
  return static_cast<uint64_t>(value->value);
}

// Steps a second, by when the marks or ranges of that text came; the process with most of them
// counts.
class StepRate {
 public:
  explicit StepRate(const std::string& text) : text_(text) {}

  void feed(const MeasuredProcess& process) {
    if (text_.empty()) return;
    const trace::TraceReader& reader = process.reader;
    replay::EventStream& stream = process.events;
    uint64_t count = 0;
    uint64_t first = 0;
    uint64_t last = 0;
    Event event;
    stream.rewind();
    while (stream.next(event)) {
      const bool begins = event.kind == EventKind::mark || event.kind == EventKind::range_push ||
                          event.kind == EventKind::range_start;
      if (!begins) continue;
      const auto words = reader.tables().texts.find(event.text);
      if (words == reader.tables().texts.end() || words->second != text_) continue;
      if (count++ == 0) first = event.time_ns;
      last = event.time_ns;
    }
    if (count < 2 || count <= most_ || last <= first) return;
    most_ = count;
    rate_ = static_cast<double>(count - 1) * 1e9 / static_cast<double>(last - first);
  }
  std::optional<double> rate() const { return rate_; }

 private:
  const std::string& text_;
  uint64_t most_ = 0;
  std::optional<double> rate_;
};

void take_memory(const std::string& directory, const std::string& step_mark,
                 SweepFigures& figures) {
  auto run = open_run(directory);
  if (!run.ok()) return;
  std::vector<metrics::ProcessMetrics> processes;
  StepRate steps(step_mark);
  measure_run(*run, [&](MeasuredProcess&& process) {
    steps.feed(process);
    processes.push_back(std::move(process.measured));
  });
  if (!step_mark.empty()) figures.metric = steps.rate();
  if (const auto host = host_memory_data(*run)) {
    figures.rss_peak = host->peak.tree.pss.value_or(host->peak.tree.rss);
    figures.shm_peak = host->peak.tree.shm;
  }
  const diagnose::RunFigures all = diagnose::run_figures(processes);
  figures.reserved_peak = figure(all, diagnose::BudgetFigure::reserved);
  figures.allocated_peak = figure(all, diagnose::BudgetFigure::allocated);
  figures.driver_peak = figure(all, diagnose::BudgetFigure::driver);
  figures.pinned_peak = figure(all, diagnose::BudgetFigure::pinned);
  figures.ooms = figure(all, diagnose::BudgetFigure::ooms).value_or(0);
}

template <typename T>
void take(const Json& in, const char* key, std::optional<T>& out) {
  if (!in.at(key).is_null()) out = in.at(key).get<T>();
}

// What says that a file of figures belongs to this very run.
Json identity(const std::vector<std::string>& argv, const std::string& metric) {
  return {{"argv", argv}, {"metric", metric}};
}

bool save(const std::string& path, const Json& who, const SweepFigures& figures) {
  const Json out = {{"schema", 1},
                    {"run", who},
                    {"exit_code", figures.exit_code},
                    {"seconds", figures.seconds},
                    {"metric", or_null(figures.metric)},
                    {"reserved_peak", or_null(figures.reserved_peak)},
                    {"allocated_peak", or_null(figures.allocated_peak)},
                    {"driver_peak", or_null(figures.driver_peak)},
                    {"pinned_peak", or_null(figures.pinned_peak)},
                    {"rss_peak", or_null(figures.rss_peak)},
                    {"shm_peak", or_null(figures.shm_peak)},
                    {"ooms", figures.ooms}};
  std::ofstream file(path + ".tmp", std::ios::binary);
  file << document_text(out);
  file.close();
  std::error_code failed;
  if (file) fs::rename(path + ".tmp", path, failed);
  return file && !failed;
}

// Nothing: not there, cut, or of another run.
std::optional<SweepFigures> load(const std::string& path, const Json& who) {
  std::ifstream file(path, std::ios::binary);
  const Json in = Json::parse(file, nullptr, false);
  if (!in.is_object() || in.value("schema", 0) != 1 || in.value("run", Json()) != who) {
    return std::nullopt;
  }
  try {
    SweepFigures figures;
    figures.exit_code = in.at("exit_code");
    figures.seconds = in.at("seconds");
    take(in, "metric", figures.metric);
    take(in, "reserved_peak", figures.reserved_peak);
    take(in, "allocated_peak", figures.allocated_peak);
    take(in, "driver_peak", figures.driver_peak);
    take(in, "pinned_peak", figures.pinned_peak);
    take(in, "rss_peak", figures.rss_peak);
    take(in, "shm_peak", figures.shm_peak);
    figures.ooms = in.at("ooms");
    return figures;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

class SweepRunner {
 public:
  SweepRunner(const SweepPlan& plan, const std::function<void(const std::string&)>& told)
      : plan_(plan), told_(told) {}

  Result<std::vector<SweepCombination>> run() {
    if (!plan_.metric.empty()) {
      try {
        expression_.emplace(plan_.metric, std::regex::ECMAScript);
      } catch (const std::regex_error& error) {
        return Error{ErrorCode::kInvalidArgument, fmt::format("--metric: {}", error.what())};
      }
      if (expression_->mark_count() != 1) {
        return Error{ErrorCode::kInvalidArgument,
                     "--metric: needs exactly one group, e.g. '([0-9.]+) it/s'"};
      }
    }
    std::vector<SweepCombination> all = combinations();
    for (unsigned repeat = 1; repeat <= plan_.repeats; ++repeat) {
      for (size_t i = 0; i < all.size(); ++i) {  // repeats lie apart, so that drift hits all alike
        auto figures = one(all[i].values, i, repeat);
        if (!figures.ok()) return figures.error();
        all[i].runs.push_back(*figures);
      }
    }
    return all;
  }

 private:
  std::vector<SweepCombination> combinations() const {
    std::vector<SweepCombination> all(1);
    for (const Variable& variable : plan_.variables) {
      std::vector<SweepCombination> more;
      for (const SweepCombination& base : all) {
        for (const std::string& value : variable.values) {
          more.push_back(base);
          more.back().values.push_back(value);
        }
      }
      all = std::move(more);
    }
    return all;
  }

  Result<SweepFigures> one(const std::vector<std::string>& values, size_t index, unsigned repeat) {
    std::vector<std::string> command = plan_.command;
    std::string base = fmt::format("{}/{}", plan_.directory, index + 1);
    std::string words;
    for (size_t i = 0; i < values.size(); ++i) {
      auto filled = with_value(command, plan_.variables[i].name, values[i]);
      if (!filled.ok()) return filled.error();
      command = std::move(filled).value();
      base += "-" + file_part(values[i]);
      words += " " + plan_.variables[i].name + "=" + values[i];
    }
    base += fmt::format("-{}", repeat);
    std::vector<std::string> argv = {"run", "-q"};
    argv.insert(argv.end(), plan_.run_options.begin(), plan_.run_options.end());
    argv.push_back("--");
    argv.insert(argv.end(), command.begin(), command.end());
    const Json who = identity(argv, plan_.metric + plan_.step_mark);
    if (auto known = load(base + ".json", who)) {
      told_(fmt::format("taken from an earlier sweep:{} ({})", words, repeat));
      return *known;
    }
    told_(fmt::format("running:{} ({} of {})", words, repeat, plan_.repeats));
    return execute(argv, base, who);
  }

  Result<SweepFigures> execute(std::vector<std::string> argv, const std::string& base,
                               const Json& who) {
    std::error_code failed;
    fs::remove_all(base + ".fsr", failed);  // of a run that was cut short
    argv.insert(argv.begin(), fs::read_symlink("/proc/self/exe").string());
    argv.insert(argv.begin() + 3, {"-o", base + ".fsr"});
    const auto start = std::chrono::steady_clock::now();
    const auto finished = run_helper(argv, own_environment());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (!finished.ok()) return finished.error();
    if (finished->exit_code >= 125 && finished->exit_code <= 127) {
      return Error{ErrorCode::kInternal, "the command did not run: " + first_line(finished->err)};
    }
    SweepFigures figures;
    figures.exit_code = finished->exit_code;
    figures.seconds = took.count();
    const std::string output = finished->out + finished->err;
    if (expression_) figures.metric = last_match(output, *expression_);
    take_memory(base + ".fsr", plan_.step_mark, figures);
    std::ofstream(base + ".log", std::ios::binary) << output;
    if (save(base + ".json", who, figures)) return figures;
    return Error{ErrorCode::kNoSpace, base + ".json: cannot be written"};
  }

  const SweepPlan& plan_;
  const std::function<void(const std::string&)>& told_;
  std::optional<std::regex> expression_;
};

}  // namespace

bool SweepCombination::failed() const {
  return std::any_of(runs.begin(), runs.end(),
                     [](const SweepFigures& run) { return run.exit_code != 0; });
}

std::optional<double> SweepCombination::mean_metric() const {
  double sum = 0;
  for (const SweepFigures& run : runs) {
    if (!run.metric) return std::nullopt;
    sum += *run.metric;
  }
  if (runs.empty()) return std::nullopt;
  return sum / static_cast<double>(runs.size());
}

double SweepCombination::mean_seconds() const {
  double sum = 0;
  for (const SweepFigures& run : runs) sum += run.seconds;
  return runs.empty() ? 0 : sum / static_cast<double>(runs.size());
}

Result<std::vector<SweepCombination>> run_sweep_plan(
    const SweepPlan& plan, const std::function<void(const std::string&)>& told) {
  return SweepRunner(plan, told).run();
}

std::optional<size_t> winner_of(const std::vector<SweepCombination>& combinations) {
  std::optional<size_t> best;
  double best_score = 0;
  const bool measured = std::all_of(
      combinations.begin(), combinations.end(),
      [](const SweepCombination& each) { return each.failed() || each.mean_metric().has_value(); });
  for (size_t i = 0; i < combinations.size(); ++i) {
    if (combinations[i].failed()) continue;
    const double score =
        measured ? combinations[i].mean_metric().value_or(0) : -combinations[i].mean_seconds();
    if (best && score <= best_score) continue;
    best = i;
    best_score = score;
  }
  return best;
}

}  // namespace fragscope::tools
