// Where the ranks of a communicator, in any number of processes, meet: a small file beside the
// run's ledger (in /dev/shm without one) named by the communicator's random id, 0600, removed by
// the last rank that has read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace fragscope::simcuda {

struct RankFacts {
  int32_t device = 0;  // number of the card
  int32_t color = 0;   // of a split; negative: takes no part
  int32_t key = 0;
};

class Rendezvous {
 public:
  // `name` is the same for all ranks. Announces this rank.
  static Result<Rendezvous> join(const std::string& name, int ranks, int rank,
                                 const RankFacts& facts);
  Rendezvous(Rendezvous&& other) noexcept;
  Rendezvous& operator=(Rendezvous&&) = delete;
  ~Rendezvous();

  // Blocks until all ranks have joined, as the vendor's library does; kNotFound after five minutes.
  Result<std::vector<RankFacts>> wait();

 private:
  struct Row;
  Rendezvous(std::string path, Row* rows, int ranks, int rank)
      : path_(std::move(path)), rows_(rows), ranks_(ranks), rank_(rank) {}

  std::string path_;
  Row* rows_;
  int ranks_;
  int rank_;
};

}  // namespace fragscope::simcuda
