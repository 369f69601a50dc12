// One pass over the events of a recorded process: every device verified under the given rules and,
// if asked, its client's calls collected beside.
//
// Threads: one at a time. Ownership: borrows everything while it is made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "replay/block_ops.h"
#include "replay/call_list.h"
#include "replay/event_stream.h"
#include "replay/process_facts.h"
#include "replay/process_rules.h"
#include "replay/verifier.h"

namespace fragscope::replay {

struct PassSettings {
  bool with_calls = false;  // build the call lists
  bool with_seqs = false;   // … with the seqs of their events
};

struct VerifyPass {
  struct Device {
    explicit Device(const VerifySettings& settings) : verifier(settings) {}
    DeviceVerifier verifier;
    std::unique_ptr<CallListBuilder> calls;  // with_calls; not finished yet
  };

  BlockPlane plane;
  std::map<int32_t, std::unique_ptr<Device>> devices;
  std::map<uint64_t, uint64_t> changes;  // seq of an event that changed settings -> its number

  VerifyPass(EventStream& events, const ProcessFacts& facts, const Rules& rules,
             const PassSettings& settings = {});
};

// How a device is verified under the process's rules, which must outlive the verifier.
VerifySettings verify_settings(int32_t device, const ProcessFacts& facts, const Rules& rules);

}  // namespace fragscope::replay
