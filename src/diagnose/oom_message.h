// Text -> facts: finds the out-of-memory message of an error text or a log and reads its figures.
//
// Knows the wordings of PyTorch's allocators since 0.4, of libraries around it and of other
// frameworks (Family), each damaged as people paste them: broken lines, cut ends, colours, JSON
// escapes, log prefixes, other units. What a message does not print stays empty; nothing is
// guessed. A text with several messages: the last one decides, but an echo (a bare "CUDA
// error: out of memory", a library's status code) does not displace a message with figures or a
// stated cause.
//
// Any bytes are accepted; memory is bounded whatever the size of the text. Not thread-safe.
// Source of the wordings: PyTorch's sources and issue tracker; README.md has the table.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/quantity.h"

namespace fragscope::diagnose {

// Who wrote the message; families.def has the list and what its order means.
enum class Family : uint8_t {
#define FAMILY(id, source) id,
#include "diagnose/families.def"
#undef FAMILY
};
std::string_view family_name(Family family);

// Circumstances that the text around the message tells.
enum class Hint : uint8_t {
  kPinned,        // page-locking is named: cudaHostAlloc, pin_memory=True, …
  kOtherProcess,  // somebody else uses the card
  kLeak,          // memory grows, tensors stay alive
  kContainer,     // Docker, Kubernetes
  kWindows,
  kWsl,
  kRoomyShm,      // /dev/shm is stated to be gigabytes large, or workers are 0
  kSmallerBatch,  // less data cures it
  kLmdb,          // memory-mapped data files
  kCaptureGraphs,
  kContextCreation,  // the failing call creates a CUDA context
  kShmNamed,         // shared memory is named
  kHalfReceived,     // an object that a collective or a file hands over, a timeout of one
  kCount,
};
using Hints = std::bitset<static_cast<size_t>(Hint::kCount)>;

// Parts of PyTorch's text that tell its version.
enum class Mark : uint8_t {
  kHip,
  kXpu,
  kCapacty,           // the misspelling of 2.1
  kMaxSplitAdvice,    // 1.10 … 2.1
  kExpandableAdvice,  // 2.2 and later
  kGenericConf,       // PYTORCH_ALLOC_CONF: 2.10
  kDocsUrl,           // docs.pytorch.org: 2.11 and later
  kExpandableOn,      // "expandable_segments is enabled": 2.15
  kBeyondReserve,     // "exceeds the expandable-segment reserve": 2.15
  kLegacyLayout,      // "(GPU 0; … total capacity; …)": up to 2.0
  kCurrentLayout,     // "GPU 0 has a total capacity of …": 2.1 and later
  kCount,
};
using Marks = std::bitset<static_cast<size_t>(Mark::kCount)>;

enum class Field : uint8_t {
  kTried,
  kTotal,
  kAllocated,
  kFree,
  kReserved,  // by PyTorch in total; by a pool in the wordings of CuPy
  kCached,  // up to 1.3: held by the allocator and NOT in use (not the total, as the word suggests)
  kUnallocated,  // reserved by PyTorch but unallocated
  kAllowed,      // what a memory fraction allows PyTorch to reserve
  kLimit,        // a limit that something else prints: async backend, CuPy, XLA, vGPU layer
  kPrivatePools,
  kProcessInUse,  // this process, CUDA context and libraries included
  kDeviceInUse,   // all processes on the device together
  kCount,
};
inline constexpr size_t kFieldCount = static_cast<size_t>(Field::kCount);
std::string_view field_name(Field field);  // "tried_bytes", …

struct ListedProcess {
  uint64_t pid = 0;
  Quantity in_use;
};

struct OomFacts {
  Family family = Family::kNone;
  std::array<std::optional<Quantity>, kFieldCount> figures;
  std::vector<ListedProcess> listed_processes;  // other than "this process"; at most 1024
  std::optional<uint64_t> device_index;
  // 2^64 − x printed as a size: the driver or the backend had no value. The figure stays empty.
  bool process_in_use_is_sentinel = false;
  bool limit_is_sentinel = false;
  std::optional<double> memory_fraction;         // set_per_process_memory_fraction and its options
  std::optional<double> gpu_memory_utilization;  // vLLM's budget, no cap on PyTorch
  std::optional<uint64_t> memlock_kib;           // `ulimit -l`
  Marks marks;
  Hints hints;
  uint64_t begin = 0;  // position in the squeezed text
  uint64_t end = 0;

  const std::optional<Quantity>& operator[](Field field) const {
    return figures[static_cast<size_t>(field)];
  }
  bool has(Mark mark) const { return marks.test(static_cast<size_t>(mark)); }
  bool has(Hint hint) const { return hints.test(static_cast<size_t>(hint)); }
  bool has_figures() const;
};

// The template of the caching allocator's text ("A" … "M", README.md) and the releases that print
// it; empty where the text does not tell.
struct Wording {
  std::string_view letter;
  std::string_view torch_versions;
};
Wording wording_of(const OomFacts& facts);

struct MessageScan {
  std::optional<OomFacts> message;  // the deciding one
  uint64_t messages = 0;            // all that were found
  bool allocated_grew = false;      // three or more messages, each with more allocated bytes
};

class MessageCollector;

class MessageScanner {
 public:
  MessageScanner();
  ~MessageScanner();
  MessageScanner(const MessageScanner&) = delete;
  MessageScanner& operator=(const MessageScanner&) = delete;

  // The text, in pieces of any size.
  void feed(std::string_view raw);
  // What the user says about the circumstances; read for hints and settings only.
  void add_context(std::string_view raw);
  MessageScan finish();

 private:
  void scan(bool to_the_end);

  struct Squeezed;
  std::unique_ptr<Squeezed> text_;
  std::unique_ptr<MessageCollector> collector_;
};

MessageScan scan_message(std::string_view raw, std::string_view context = {});

}  // namespace fragscope::diagnose
