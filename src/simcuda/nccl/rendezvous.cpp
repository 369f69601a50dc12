#include "simcuda/nccl/rendezvous.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "simcuda/sim_config.h"

namespace fragscope::simcuda {

struct Rendezvous::Row {
  std::atomic<uint32_t> joined;
  std::atomic<uint32_t> left;
  RankFacts facts;
};

namespace {

constexpr int kPollMicroseconds = 500;
constexpr int kPolls = 600'000;  // five minutes

Error failure(const std::string& path, int number) {
  return {ErrorCode::kNoSpace, path + ": " + std::strerror(number)};
}

}  // namespace

Result<Rendezvous> Rendezvous::join(const std::string& name, int ranks, int rank,
                                    const RankFacts& facts) {
  const char* ledger = ::secure_getenv(kLedgerVariable);
  const std::string path =
      ledger == nullptr ? "/dev/shm/fragscope-nccl-" + name : std::string(ledger) + "-nccl-" + name;
  const size_t bytes = static_cast<size_t>(ranks) * sizeof(Row);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return failure(path, errno);
  int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  void* at = MAP_FAILED;
  if (error == 0) {
    at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) error = errno;
  }
  ::close(fd);
  if (error != 0) return failure(path, error);
  Row* const rows = static_cast<Row*>(at);
  rows[rank].facts = facts;
  rows[rank].joined.store(1, std::memory_order_release);
  return Rendezvous(path, rows, ranks, rank);
}

Rendezvous::Rendezvous(Rendezvous&& other) noexcept
    : path_(std::move(other.path_)),
      rows_(std::exchange(other.rows_, nullptr)),
      ranks_(other.ranks_),
      rank_(other.rank_) {}

Rendezvous::~Rendezvous() {
  if (rows_ == nullptr) return;
  rows_[rank_].left.store(1);
  bool last = true;
  for (int i = 0; i < ranks_; ++i) last = last && rows_[i].left.load() != 0;
  if (last) ::unlink(path_.c_str());  // two may find themselves last: the second unlink fails
  ::munmap(rows_, static_cast<size_t>(ranks_) * sizeof(Row));
}

Result<std::vector<RankFacts>> Rendezvous::wait() {
  std::vector<RankFacts> facts;
  for (int i = 0; i < ranks_; ++i) {
    for (int poll = 0; rows_[i].joined.load(std::memory_order_acquire) == 0; ++poll) {
      if (poll == kPolls) {
        return Error{ErrorCode::kNotFound, "rank " + std::to_string(i) + " has not come"};
      }
      const timespec pause{0, kPollMicroseconds * 1000};
      ::nanosleep(&pause, nullptr);
    }
    facts.push_back(rows_[i].facts);
  }
  return facts;
}

}  // namespace fragscope::simcuda
