// One report as plain data: everything that the text and the JSON show, and nothing else. Filled by
// build_report.h, rendered by text_report.h and json_report.h.
//
// Units: bytes, nanoseconds, counts. Absent = unknown; never 0, never a guess.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/coverage.h"
#include "metrics/gauge.h"
#include "metrics/layout.h"
#include "metrics/memory_info.h"

namespace fragscope::report {

struct ExitData {
  std::string kind;         // exited, signaled, vanished, running
  std::optional<int> code;  // exit status or signal number
};

// Memory of the host as the collector saw it from outside: the most of each figure.
struct HostUseData {
  uint64_t rss = 0;
  std::optional<uint64_t> pss;  // absent: another user's process
  std::optional<uint64_t> shm;
};

struct HostProcessData {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  uint32_t parent_pid = 0;
  std::string name;
  bool recorded = false;  // it has a trace: it made CUDA memory calls
  uint64_t first_ns = 0;  // CLOCK_MONOTONIC: seen from … to
  uint64_t last_ns = 0;
  HostUseData peak;
};

// The most (available, cgroup_limit: the least) that was seen since the moment before.
struct HostMomentData {
  uint64_t time_ns = 0;
  uint64_t looks = 0;
  uint64_t processes = 0;
  HostUseData tree;  // of all processes of the command; files of /dev/shm once
  uint64_t shm_unlinked = 0;
  std::optional<uint64_t> shm_used;  // by everybody
  std::optional<uint64_t> shm_total;
  uint64_t recorder_shm = 0;
  std::optional<uint64_t> available;
  std::optional<uint64_t> cgroup_used;         // of the control group with least room
  std::optional<uint64_t> cgroup_limit;        // absent: no limit, or not seen
  std::map<uint32_t, HostUseData> by_process;  // key: index into HostMemoryData::processes
};

struct HostMemoryData {
  uint64_t interval_ns = 0;
  std::vector<HostProcessData> processes;  // in the order in which they were seen first
  HostMomentData peak;
  std::vector<HostMomentData> series;
};

// What is known of the whole run.
struct RunData {
  std::string path;
  std::optional<std::string> fragscope_version;
  std::optional<std::vector<std::string>> command;
  std::optional<std::string> start_time;  // UTC, RFC 3339
  std::optional<std::string> host;
  std::optional<std::string> gpu;  // simulated card; absent: the machine's own or unknown
  // Of a simulated run: what it relied on that is not exact, as run.json has it ("answered_values",
  // "assumed_sizes", "unsupported_calls"); a key that is missing did not happen.
  std::map<std::string, std::string> simulation;
  // The largest convolution workspace that was assumed, and the room that others could need;
  // absent: no convolution ran on a simulated device.
  std::optional<uint64_t> workspace_bytes;
  std::optional<uint64_t> workspace_room_bytes;
  std::optional<bool> sealed;
  std::optional<ExitData> exit;
  std::optional<std::string> nothing_recorded;  // why there is no process; absent: there are some
  std::optional<HostMemoryData> host_memory;    // absent: nobody looked at it
};

struct OomData {
  uint64_t seq = 0;
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  std::optional<uint64_t> requested_bytes;
  std::optional<uint64_t> device_free_bytes;
  std::vector<std::string> stack;  // innermost first
};

struct BlockData {
  uint64_t address = 0;
  uint64_t size = 0;
  std::optional<uint64_t> requested;
  std::vector<std::string> stack;
};

struct GapData {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t segment_address = 0;
  uint64_t segment_size = 0;
  std::optional<BlockData> before;
  std::optional<BlockData> after;
};

struct PinData {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t active_bytes = 0;
  uint64_t inactive_bytes = 0;
  std::vector<BlockData> blocks;
};

struct StackData {
  uint64_t bytes = 0;
  uint64_t blocks = 0;
  std::vector<std::string> stack;  // empty: recorded without one
};

// The segments of a device at one moment, and what stands out in them.
struct MomentData {
  std::string name;             // "peak", "oom", "end", "oom_and_end"
  std::optional<uint64_t> seq;  // absent: the end
  std::optional<uint64_t> time_ns;
  uint64_t segment_bytes = 0;  // of the segments in the picture
  uint64_t active_bytes = 0;
  uint64_t stuck_bytes = 0;  // free in segments in which something lives
  uint64_t idle_bytes = 0;   // segments in which nothing lives
  metrics::Layout layout;
  std::vector<GapData> gaps;
  std::vector<PinData> pins;
  std::vector<StackData> top_stacks;
};

struct DivergenceData {
  uint64_t seq = 0;
  std::string predicted;
  std::string recorded;
  std::string rule;
  std::string reason;
};

struct VerifyData {
  uint64_t block_events = 0;
  uint64_t address_matches = 0;
  uint64_t segment_calls = 0;
  uint64_t segment_matches = 0;
  std::optional<DivergenceData> first_divergence;
};

// Memory from CUDA by sort (metrics/driver_bytes.h).
struct DriverAccountsData {
  metrics::KnownLevel plain, stream_ordered, arrays, graphs, physical;
  metrics::KnownLevel managed, reserved, mapped;
};

// Calls of one function that failed with one error.
struct FailureData {
  std::optional<std::string> function;
  std::string kind;
  int32_t result = 0;
  bool probe = false;  // for a kind of shareable handle: expected by who asks
  uint64_t count = 0;
  std::optional<uint64_t> largest_bytes;
  // Of the first one:
  uint64_t seq = 0;
  uint64_t time_ns = 0;
  std::optional<int> device;
  uint64_t held_bytes = 0;
  std::optional<uint64_t> free_bytes;
  std::vector<std::string> stack;
};

struct OpenedMemoryData {
  std::optional<uint32_t> owner_pid;  // absent: no process of the run exported it
  std::optional<uint64_t> bytes;
  bool closed = false;
};

struct SharedMemoryData {
  std::map<uint64_t, std::optional<uint64_t>> exports;  // by key, see metrics/shared_memory.h
  std::vector<uint64_t> opened_keys;                    // of `opened`, in the same order
  std::vector<OpenedMemoryData> opened;
  uint64_t handles_exported = 0;
  uint64_t handles_imported = 0;
  metrics::KnownLevel external_bytes;
};

struct BytesRange {
  uint64_t low = 0;
  uint64_t high = 0;
};

struct DeviceData {
  std::optional<int> index;  // absent: the events did not say
  std::optional<std::string> name;
  std::optional<std::string> uuid;
  std::optional<bool> simulated;
  std::optional<uint64_t> total_bytes;  // as the program saw it
  std::optional<uint64_t> card_bytes;   // where a cap hid some of them
  metrics::KnownLevel driver_bytes;
  std::optional<DriverAccountsData> accounts;
  std::optional<metrics::MemoryInfo> memory_info;
  bool modelled = false;  // the levels below are a model's, not the program's own allocator's
  metrics::KnownLevel reserved_bytes;
  // A simulated run with convolutions: where the peak of reserved bytes lies whatever workspaces
  // cuDNN takes.
  std::optional<BytesRange> reserved_peak_range;
  metrics::KnownLevel allocated_bytes;
  metrics::KnownLevel active_bytes;
  metrics::KnownLevel requested_bytes;
  metrics::KnownLevel inactive_split_bytes;
  metrics::KnownLevel segments;              // count
  std::optional<std::vector<OomData>> ooms;  // absent: no allocator that tells
  std::vector<MomentData> moments;
  // Replay only.
  std::optional<VerifyData> verify;
  std::optional<uint64_t> capacity_bytes;
  std::optional<uint64_t> device_mallocs;
  std::optional<uint64_t> device_frees;
  std::optional<uint64_t> ooms_avoided;
};

struct PhaseData {
  std::string name;
  uint64_t count = 0;
  uint64_t total_ns = 0;
  std::optional<uint64_t> driver_peak_bytes;  // absent: no driver plane
  std::optional<uint64_t> allocated_peak_bytes;
  std::optional<int64_t> allocated_growth_bytes;
};

struct ReplayData {
  std::string mode;  // verified, what_if, modelled, undecidable
  std::optional<std::string> reason;
  std::string torch_version;
  std::string alloc_conf;
};

// Damage ends a trace before its end: figures are of the events before it.
struct DamageData {
  std::string text;  // names the file, what is wrong and where
  std::optional<uint64_t> offset;
  uint64_t events_read = 0;
  std::optional<uint64_t> events_recorded;  // absent: the trace has no trailer that says so
};

// What one call stack holds page-locked.
struct PinnedHolderData {
  uint64_t peak_bytes = 0;  // when the process held most
  uint64_t peak_count = 0;
  uint64_t final_bytes = 0;
  bool torch_host = false;
  std::vector<std::string> stack;
};

struct ProcessData {
  uint32_t pid = 0;
  std::string program;
  ExitData exit;
  uint64_t events = 0;
  uint64_t dropped_events = 0;
  uint64_t torn_records = 0;
  uint64_t failed_calls = 0;
  uint64_t probes = 0;
  std::vector<FailureData> failures;
  std::optional<SharedMemoryData> shared;
  uint64_t anomalies = 0;
  std::string block_source;
  metrics::Coverage coverage;
  std::vector<DeviceData> devices;
  std::vector<PhaseData> phases;
  metrics::KnownLevel pinned_driver;
  metrics::KnownLevel pinned_torch_host;
  metrics::KnownLevel pinned_most_padding;  // of it
  std::vector<PinnedHolderData> pinned_holders;
  std::optional<ReplayData> replay;
  std::optional<DamageData> damage;
  std::vector<std::string> notes;  // limits and assumptions, in sentences
};

struct ReportData {
  RunData run;
  std::vector<ProcessData> processes;
  std::vector<std::string> warnings;
};

}  // namespace fragscope::report
