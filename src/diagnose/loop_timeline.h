// The steps and phases of a training loop, told from the acts of its allocations in their order,
// and what became of the blocks that were live at one moment. The rules: attribution.h.
//
// Units: bytes. Threads: one at a time; one device.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "diagnose/attribution.h"
#include "metrics/open_ranges.h"
#include "replay/block_ops.h"

namespace fragscope::diagnose {

struct BlockLife {
  uint64_t address = 0;
  uint64_t size = kUnknown;
  uint64_t requested = kUnknown;
  uint64_t seq = 0;  // of the allocation
  uint32_t stack = kNoStack;
  uint32_t tid = 0;
  uint32_t range = 0;        // text of the innermost open range; 0: none
  uint32_t outer_range = 0;  // of the outermost
  Act act = Act::plain;
  bool told = false;  // its stack has frames
  LoopPhase phase = LoopPhase::setup;
  bool recomputed = false;  // a forward within a backward pass
  uint32_t step = 0;
  uint32_t call = 0;     // of the model, where nothing is trained
  uint32_t stretch = 0;  // number of the stretch of one phase that it was made in
  // Of its free; `died_seq` 0: never freed.
  uint64_t died_seq = 0;
  uint32_t died_tid = 0;
  uint32_t died_step = 0;
  uint32_t died_stretch = 0;
};

class LoopTimeline {
 public:
  // `main_tid`: of the process's first thread.
  explicit LoopTimeline(uint32_t main_tid) : main_tid_(main_tid) {}

  // `ranges`: around it, by metrics/open_ranges.h.
  void allocate(const replay::BlockOp& op, const StackRole& role,
                const metrics::OpenRanges& ranges);
  void size(const replay::BlockOp& op);
  void free(const replay::BlockOp& op);
  // Keeps what is live now.
  void take_census();
  // No allocation follows: what is freed from here on belongs to the end of the process, but for
  // what threads of the autograd engine still free.
  void take_end();

  const std::vector<BlockLife>& census() const { return census_; }
  const std::vector<BlockLife>& survivors() const { return survivors_; }  // at take_end()
  // Live bytes at the end of each step but the last, which nothing ended.
  const std::vector<uint64_t>& step_ends() const { return step_ends_; }
  // First allocation of each step but the first, by seq.
  const std::vector<uint64_t>& step_seqs() const { return step_seqs_; }
  const std::vector<uint64_t>& step_times_ns() const { return step_times_ns_; }
  // Calls of the model: the stack of the first forward allocation came again, and the program
  // itself allocated something in between (its inputs; layers of one class in a row are one call).
  uint32_t calls() const { return calls_; }
  uint32_t census_step() const { return census_step_; }
  uint32_t step() const { return step_; }  // of now; after all: the last one
  bool is_engine(uint32_t tid) const { return engine_tids_.count(tid) != 0; }
  bool saw_forward() const { return saw_forward_; }

 private:
  LoopPhase phase_of(const StackRole& role, const replay::BlockOp& op);
  void enter(LoopPhase phase, const replay::BlockOp& op);

  uint32_t main_tid_;
  std::unordered_map<uint64_t, BlockLife> live_;       // by address
  std::unordered_map<uint64_t, size_t> census_index_;  // live ones of the census, by address
  std::vector<BlockLife> census_;
  std::vector<BlockLife> survivors_;
  std::vector<uint64_t> step_ends_;
  std::vector<uint64_t> step_seqs_;
  std::vector<uint64_t> step_times_ns_;
  uint32_t census_step_ = 0;
  std::set<uint32_t> engine_tids_;
  uint64_t live_bytes_ = 0;
  LoopPhase phase_ = LoopPhase::setup;
  uint32_t step_ = 0;
  uint32_t calls_ = 0;
  uint32_t first_forward_stack_ = kNoStack;
  bool plain_since_call_ = true;
  uint32_t stretch_ = 0;
  bool saw_forward_ = false;
  bool ended_ = false;
};

TensorRole role_of_block(const BlockLife& block, const LoopTimeline& timeline);
Lifetime lifetime_of_block(const BlockLife& block);

}  // namespace fragscope::diagnose
