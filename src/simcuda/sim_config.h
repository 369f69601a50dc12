// What a simulated machine looks like: the text that `fragscope run --gpu` hands to the stand-ins
// in FRAGSCOPE_SIM, and the table of known cards.
//
// Text form: "key=value;key=value"; in values, '%', ';' and '=' are written %25, %3B, %3D. Keys:
//   devices               number of equal devices, 1 … model::kMaxDevices
//   total_bytes           what cudaMemGetInfo reports as total, exactly
//   context_bytes         charged once per process at its first context; included in total_bytes
//   name                  marketing name
//   cc                    compute capability, "8.0"
//   sm_count, l2_bytes    as in cudaDeviceProp
//   preset                id of the card in presets.def, absent for a bare size
//   event_latency_queries so many queries of an event answer "not ready" after its record
//   kernel_us             microseconds for which every kernel keeps its stream busy (an assumption;
//   0:
//                         none, work is done when it is issued)
//   nccl_channels         of a communicator; each has a buffer for sending and one for receiving
//   answers               file of answers to reads of computed values (answers.h)
//   script                file of errors to play (fault_script.h)
//   books                 file to which the driver appends one line per memory call that it served
//
// Pure. Threads: no shared state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fragscope::simcuda {

struct SimConfig {
  int devices = 1;
  uint64_t total_bytes = 0;
  uint64_t context_bytes = 0;
  std::string name = "FragScope Simulated GPU";
  int cc_major = 8;
  int cc_minor = 0;
  int sm_count = 108;
  uint64_t l2_bytes = 41943040;
  std::string preset;
  uint64_t event_latency_queries = 0;
  uint64_t kernel_us = 0;  // at most kMostKernelUs
  uint64_t nccl_channels = 8;
  std::string answers;
  std::string script;
  std::string books;

  bool operator==(const SimConfig&) const = default;
};

inline constexpr uint64_t kMostKernelUs = 3'600'000'000;  // an hour

struct GpuPreset {
  const char* id;
  const char* name;
  uint64_t total_bytes;
  int sm_count;
  int cc_major;
  int cc_minor;
  uint64_t l2_bytes;
  uint64_t context_bytes;
  const char* total_source;  // where total_bytes comes from, or "assumed"
};

std::span<const GpuPreset> gpu_presets();  // sorted by total_bytes, roughly

// A card from a preset's id ("a100-40gb"), or a size ("24GiB": total_bytes, no context bytes, an
// Ampere-like card). "4xh100-80gb" and "2x24GiB" give several devices. kInvalidArgument else; the
// text names the closest presets.
Result<SimConfig> resolve_gpu(std::string_view text);

// FRAGSCOPE_SIM text <-> configuration. `parse_config` refuses unknown keys and a total of 0 bytes.
std::string format_config(const SimConfig& config);
Result<SimConfig> parse_config(std::string_view text);

// Identity of card `index` of the machine: its PCI bus number is kFirstPciBus + index.
inline constexpr int kFirstPciBus = 0x17;
std::string uuid_text(int index);  // "GPU-46726167-…", as NVML and CUDA_VISIBLE_DEVICES spell it

// Assumed sizes that tools look up in the ledger: the workspace of a plan, and the sum of the
// segments that other plans' workspaces could need (dnn/convolution_plan.h).
inline constexpr const char* kPlanWorkspaceName = "cuDNN: workspace of a convolution plan";
inline constexpr const char* kWorkspaceRoomName = "cuDNN: room for other workspaces";

inline constexpr const char* kConfigVariable = "FRAGSCOPE_SIM";
inline constexpr const char* kLedgerVariable = "FRAGSCOPE_SIM_LEDGER";

}  // namespace fragscope::simcuda
