#include "report/json_report.h"

#include <nlohmann/json.hpp>

#include "report/host_memory.h"

namespace fragscope::report {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json known(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json level(const metrics::KnownLevel& value) {
  return {{"peak", known(value.peak)}, {"final", known(value.final)}};
}

Json exit_json(const ExitData& exit) { return {{"kind", exit.kind}, {"code", known(exit.code)}}; }

Json run_json(const RunData& run) {
  return {{"path", run.path},
          {"fragscope_version", known(run.fragscope_version)},
          {"command", known(run.command)},
          {"start_time", known(run.start_time)},
          {"host", known(run.host)},
          {"gpu", known(run.gpu)},
          {"simulation", run.gpu ? Json(run.simulation) : Json(nullptr)},
          {"sealed", known(run.sealed)},
          {"exit", run.exit ? exit_json(*run.exit) : Json(nullptr)},
          {"nothing_recorded", known(run.nothing_recorded)},
          {"host_memory", run.host_memory ? host_memory_json(*run.host_memory) : Json(nullptr)}};
}

Json coverage_json(const ProcessData& process) {
  const metrics::Coverage& coverage = process.coverage;
  return {{"hooked", known(coverage.hooked)},
          {"unhooked", Json(coverage.unhooked)},
          {"cudart", coverage.cudart},
          {"cudart_static", coverage.static_cudart},
          {"calls", coverage.calls.empty() ? Json(nullptr) : Json(coverage.calls)},
          {"stacks", known(coverage.stacks)},
          {"failed_calls", process.failed_calls},
          {"probes", process.probes},
          {"contradictory_events", process.anomalies}};
}

Json oom_json(const OomData& oom) {
  return {{"seq", oom.seq},
          {"t_ns", oom.time_ns},
          {"requested_bytes", known(oom.requested_bytes)},
          {"device_free_bytes", known(oom.device_free_bytes)},
          {"stack", oom.stack}};
}

Json block_json(const BlockData& block) {
  return {{"address", block.address},
          {"size", block.size},
          {"requested", known(block.requested)},
          {"stack", block.stack}};
}

template <typename T, typename Render>
Json list(const std::vector<T>& items, Render render) {
  Json result = Json::array();
  for (const T& item : items) result.push_back(render(item));
  return result;
}

Json gap_json(const GapData& gap) {
  return {{"address", gap.address},
          {"size", gap.size},
          {"segment_address", gap.segment_address},
          {"segment_size", gap.segment_size},
          {"before", gap.before ? block_json(*gap.before) : Json(nullptr)},
          {"after", gap.after ? block_json(*gap.after) : Json(nullptr)}};
}

Json pin_json(const PinData& pin) {
  return {{"address", pin.address},
          {"size", pin.size},
          {"active_bytes", pin.active_bytes},
          {"inactive_bytes", pin.inactive_bytes},
          {"blocks", list(pin.blocks, block_json)}};
}

Json stack_json(const StackData& stack) {
  return {{"bytes", stack.bytes}, {"blocks", stack.blocks}, {"stack", stack.stack}};
}

Json moment_json(const MomentData& moment) {
  return {{"name", moment.name},
          {"seq", known(moment.seq)},
          {"t_ns", known(moment.time_ns)},
          {"segment_bytes", moment.segment_bytes},
          {"active_bytes", moment.active_bytes},
          {"stuck_bytes", moment.stuck_bytes},
          {"idle_bytes", moment.idle_bytes},
          {"largest_gaps", list(moment.gaps, gap_json)},
          {"emptiest_segments", list(moment.pins, pin_json)},
          {"top_stacks", list(moment.top_stacks, stack_json)}};
}

Json verify_json(const VerifyData& verify) {
  Json divergence;
  if (const auto& first = verify.first_divergence) {
    divergence = {{"seq", first->seq},
                  {"predicted", first->predicted},
                  {"recorded", first->recorded},
                  {"rule", first->rule},
                  {"reason", first->reason}};
  }
  return {{"block_events", verify.block_events},
          {"address_matches", verify.address_matches},
          {"segment_calls", verify.segment_calls},
          {"segment_matches", verify.segment_matches},
          {"first_divergence", divergence}};
}

// Levels of the framework's allocator; of a modelled one under names of their own.
void put_levels(const DeviceData& device, Json& out) {
  const auto put = [&](const std::string& name, const metrics::KnownLevel& value) {
    out[name] = level(device.modelled ? metrics::KnownLevel{} : value);
    if (device.modelled) out["modelled_" + name] = level(value);
  };
  put("reserved_bytes", device.reserved_bytes);
  put("allocated_bytes", device.allocated_bytes);
  put("requested_bytes", device.requested_bytes);
  put("active_bytes", device.active_bytes);
  put("inactive_split_bytes", device.inactive_split_bytes);
  put("segments", device.segments);
  const Json ooms = device.ooms ? list(*device.ooms, oom_json) : Json(nullptr);
  out["ooms"] = device.modelled ? Json(nullptr) : ooms;
  if (device.modelled) out["modelled_ooms"] = ooms;
}

Json failure_json(const FailureData& failure) {
  return {{"function", known(failure.function)},
          {"kind", failure.kind},
          {"result", failure.result},
          {"probe", failure.probe},
          {"count", failure.count},
          {"largest_bytes", known(failure.largest_bytes)},
          {"first",
           {{"seq", failure.seq},
            {"t_ns", failure.time_ns},
            {"device", known(failure.device)},
            {"held_bytes", failure.held_bytes},
            {"free_bytes", known(failure.free_bytes)},
            {"stack", failure.stack}}}};
}

Json shared_json(const SharedMemoryData& shared) {
  return {{"exported", shared.exports.size()},
          {"opened", list(shared.opened,
                          [](const OpenedMemoryData& opened) -> Json {
                            return {{"owner_pid", known(opened.owner_pid)},
                                    {"bytes", known(opened.bytes)},
                                    {"closed", opened.closed}};
                          })},
          {"handles_exported", shared.handles_exported},
          {"handles_imported", shared.handles_imported},
          {"external_bytes", level(shared.external_bytes)}};
}

// Memory from CUDA by sort; unknown levels without a driver plane.
void put_accounts(const DeviceData& device, Json& out) {
  const DriverAccountsData of = device.accounts.value_or(DriverAccountsData{});
  out["driver_accounts"] = {{"plain", level(of.plain)},
                            {"stream_ordered", level(of.stream_ordered)},
                            {"arrays", level(of.arrays)},
                            {"graphs", level(of.graphs)},
                            {"physical", level(of.physical)}};
  out["managed_bytes"] = level(of.managed);
  out["vmm"] = {{"reserved_bytes", level(of.reserved)},
                {"physical_bytes", level(of.physical)},
                {"mapped_bytes", level(of.mapped)}};
  out["memory_info"] = nullptr;
  if (const auto& info = device.memory_info) {
    out["memory_info"] = {{"answers", info->answers},
                          {"used_bytes", info->used_bytes},
                          {"first_unexplained_bytes", info->first_unexplained},
                          {"last_unexplained_bytes", info->last_unexplained}};
  }
}

Json device_json(const DeviceData& device, bool replayed) {
  Json out = {{"index", known(device.index)},
              {"name", known(device.name)},
              {"uuid", known(device.uuid)},
              {"simulated", known(device.simulated)},
              {"total_bytes", known(device.total_bytes)},
              {"driver_bytes", level(device.driver_bytes)}};
  if (device.card_bytes) out["card_bytes"] = *device.card_bytes;
  put_accounts(device, out);
  put_levels(device, out);
  if (const auto& range = device.reserved_peak_range) {
    out["reserved_peak_range"] = {{"low", range->low}, {"high", range->high}};
  }
  if (!replayed) {
    out["moments"] = list(device.moments, moment_json);
    return out;
  }
  out["verify"] = device.verify ? verify_json(*device.verify) : Json(nullptr);
  out["capacity_bytes"] = known(device.capacity_bytes);
  out["device_mallocs"] = known(device.device_mallocs);
  out["device_frees"] = known(device.device_frees);
  out["ooms_avoided"] = known(device.ooms_avoided);
  return out;
}

Json damage_json(const std::optional<DamageData>& damage) {
  if (!damage) return nullptr;
  return {{"text", damage->text},
          {"offset", known(damage->offset)},
          {"events_read", damage->events_read},
          {"events_recorded", known(damage->events_recorded)}};
}

Json phase_json(const PhaseData& phase) {
  return {{"name", phase.name},
          {"count", phase.count},
          {"total_ns", phase.total_ns},
          {"driver_peak_bytes", known(phase.driver_peak_bytes)},
          {"allocated_peak_bytes", known(phase.allocated_peak_bytes)},
          {"allocated_growth_bytes", known(phase.allocated_growth_bytes)}};
}

Json pinned_holder_json(const PinnedHolderData& holder) {
  return {{"peak_bytes", holder.peak_bytes},
          {"peak_count", holder.peak_count},
          {"final_bytes", holder.final_bytes},
          {"torch_host", holder.torch_host},
          {"stack", holder.stack}};
}

Json process_json(const ProcessData& process) {
  Json out = {{"pid", process.pid == 0 ? Json(nullptr) : Json(process.pid)},
              {"program", process.program},
              {"exit", exit_json(process.exit)},
              {"events", process.events},
              {"dropped_events", process.dropped_events},
              {"torn_records", process.torn_records},
              {"damage", damage_json(process.damage)},
              {"block_source", process.block_source},
              {"coverage", coverage_json(process)}};
  if (const auto& replay = process.replay) {
    out["replay"] = {{"mode", replay->mode},
                     {"reason", known(replay->reason)},
                     {"torch_version", replay->torch_version},
                     {"alloc_conf", replay->alloc_conf}};
  }
  out["devices"] = list(process.devices, [&](const DeviceData& device) {
    return device_json(device, process.replay.has_value());
  });
  out["phases"] = list(process.phases, phase_json);
  if (!process.replay) out["failures"] = list(process.failures, failure_json);
  out["shared_memory"] = process.shared ? shared_json(*process.shared) : Json(nullptr);
  out["pinned_bytes"] = {{"driver", level(process.pinned_driver)},
                         {"torch_host", level(process.pinned_torch_host)},
                         {"torch_host_most_padding", level(process.pinned_most_padding)}};
  if (!process.replay) {
    out["pinned_bytes"]["holders"] = list(process.pinned_holders, pinned_holder_json);
  }
  out["notes"] = process.notes;
  return out;
}

}  // namespace

std::string render_json(const ReportData& report) {
  const Json document = {{"schema", kReportSchema},
                         {"run", run_json(report.run)},
                         {"processes", list(report.processes, process_json)},
                         {"warnings", report.warnings}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fragscope::report
