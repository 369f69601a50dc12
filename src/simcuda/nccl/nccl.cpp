// Stand-in for NCCL. Ranks meet when a communicator is made (rendezvous.h); after that no byte
// crosses processes: each rank pretends that the others hold what it holds itself. What arrives is
// therefore this rank's own data, of the right size in the right place. Collectives are copies on
// their stream, so small values that a program checks at its start survive them.
//
// Memory: a communicator of more than one rank holds buffers as NCCL does, NCCL_BUFFSIZE (4 MiB
// when not set) for sending and for receiving on each channel; the number of channels is a setting
// (nccl_channels of FRAGSCOPE_SIM). That size is assumed.
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "simcuda/library_common.h"
#include "simcuda/nccl/rendezvous.h"

using namespace fragscope;
using namespace fragscope::simcuda;

struct ncclComm {
  int ranks = 1;
  int rank = 0;
  int device = 0;  // as the process numbers it
  int card = 0;
  std::string name;
  int splits = 0;
  uint64_t buffer = 0;
};

namespace {

// ncclResult_t
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
};

struct UniqueId {
  unsigned char bytes[128];
};

thread_local std::string t_last_error;

NcclResult fail(NcclResult result, std::string text) {
  t_last_error = std::move(text);
  return result;
}

template <typename Function>
Function driver_call(const char* name) {
  return reinterpret_cast<Function>(driver_function(name));
}

bool current_device(int& device, int& card) {
  static const auto get = driver_call<int (*)(int*)>("cuCtxGetDevice");
  static const auto address = driver_call<int (*)(char*, int, int)>("cuDeviceGetPCIBusId");
  char text[32] = {};
  if (get == nullptr || address == nullptr || get(&device) != 0) return false;
  if (address(text, sizeof text, device) != 0) return false;
  const char* bus = std::strchr(text, ':');  // domain:bus:device.function
  if (bus == nullptr) return false;
  card = static_cast<int>(std::strtol(bus + 1, nullptr, 16)) - kFirstPciBus;
  return true;
}

NcclResult copy(void* to, const void* from, size_t bytes, void* stream) {
  static const auto run =
      driver_call<int (*)(uint64_t, uint64_t, size_t, void*)>("cuMemcpyDtoDAsync_v2");
  if (bytes == 0 || to == from) return kNcclSuccess;
  if (run == nullptr) return kNcclInternalError;
  const int result =
      run(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, stream);
  return result == 0 ? kNcclSuccess : kNcclUnhandledCudaError;
}

size_t bytes_of(int type, size_t count) {
  constexpr unsigned char kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type < 0 || type >= static_cast<int>(std::size(kSizes)) ? 0 : kSizes[type] * count;
}

void* at(void* base, size_t bytes) { return static_cast<std::byte*>(base) + bytes; }
const void* at(const void* base, size_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

// --- groups ---

struct Exchange {  // a send, a receive, or one rank's part of a broadcast
  ncclComm* comm;
  int peer;  // or root
  const void* send;
  void* receive;
  size_t bytes;
  void* stream;
};
struct Arrival {
  std::unique_ptr<ncclComm> comm;
  Rendezvous meeting;
  ncclComm** out;
};
struct Group {
  int depth = 0;
  std::vector<Exchange> exchanges;
  std::vector<Arrival> arrivals;
};
thread_local Group t_group;

// What a receive gets: what this rank sends to the same peer, else anything of that size it sends.
NcclResult settle(const std::vector<Exchange>& exchanges) {
  for (const Exchange& receive : exchanges) {
    if (receive.receive == nullptr) continue;
    const Exchange* source = nullptr;
    for (const Exchange& send : exchanges) {
      if (send.send == nullptr || send.comm != receive.comm || send.bytes != receive.bytes)
        continue;
      if (source == nullptr || send.peer == receive.peer) source = &send;
    }
    if (source == nullptr) continue;
    const NcclResult result = copy(receive.receive, source->send, receive.bytes, receive.stream);
    if (result != kNcclSuccess) return result;
  }
  return kNcclSuccess;
}

NcclResult exchange(const Exchange& one) {
  if (one.comm == nullptr) return kNcclInvalidArgument;
  try {
    if (t_group.depth > 0) {
      t_group.exchanges.push_back(one);
      return kNcclSuccess;
    }
    return settle({one});
  } catch (const std::bad_alloc&) {
    return kNcclSystemError;
  }
}

// --- communicators ---

uint64_t buffer_bytes() {
  constexpr uint64_t kDefaultBuffer = 4 << 20;
  const char* text = ::secure_getenv("NCCL_BUFFSIZE");
  const uint64_t given = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  return 2 * (given != 0 ? given : kDefaultBuffer) * simulated_machine().nccl_channels;
}

NcclResult hold_buffers(ncclComm& comm) {
  static const auto allocate = driver_call<int (*)(uint64_t*, size_t)>("cuMemAlloc_v2");
  if (comm.ranks < 2 || buffer_bytes() == 0) return kNcclSuccess;
  if (allocate == nullptr) return kNcclInternalError;
  note_assumed_size("NCCL: buffers of a communicator", buffer_bytes());
  if (allocate(&comm.buffer, buffer_bytes()) == 0) return kNcclSuccess;
  comm.buffer = 0;
  return fail(kNcclUnhandledCudaError, "out of memory for the communicator's buffers");
}

void release(ncclComm* comm) {
  static const auto free = driver_call<int (*)(uint64_t)>("cuMemFree_v2");
  if (comm != nullptr && comm->buffer != 0 && free != nullptr) free(comm->buffer);
  delete comm;
}

NcclResult finish(Arrival& arrival) {
  const auto facts = arrival.meeting.wait();
  if (!facts) return fail(kNcclSystemError, facts.error().text);
  const auto card = [&](int rank) { return (*facts)[static_cast<size_t>(rank)].device; };
  ncclComm& comm = *arrival.comm;
  for (int other = 0; other < comm.ranks; ++other) {
    if (other == comm.rank || card(other) != comm.card) continue;
    char bus[8];
    std::snprintf(bus, sizeof bus, "%x000", kFirstPciBus + comm.card);
    return fail(kNcclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(comm.rank) +
                                       " and rank " + std::to_string(other) +
                                       " both on CUDA device " + bus);
  }
  const NcclResult held = hold_buffers(comm);
  if (held == kNcclSuccess) *arrival.out = arrival.comm.release();
  return held;
}

std::string name_of(const UniqueId& id) {
  std::string text;
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < 16; ++i) {
    text += kDigits[id.bytes[i] >> 4];
    text += kDigits[id.bytes[i] & 15];
  }
  return text;
}

NcclResult initialise(ncclComm** out, int ranks, const UniqueId& id, int rank) noexcept try {
  if (out == nullptr || ranks < 1 || rank < 0 || rank >= ranks) return kNcclInvalidArgument;
  auto comm = std::make_unique<ncclComm>();
  comm->ranks = ranks;
  comm->rank = rank;
  comm->name = name_of(id);
  if (!current_device(comm->device, comm->card)) return kNcclUnhandledCudaError;
  auto meeting = Rendezvous::join(comm->name, ranks, rank, {comm->card, 0, 0});
  if (!meeting) return fail(kNcclSystemError, meeting.error().text);
  Arrival arrival{std::move(comm), std::move(*meeting), out};
  if (t_group.depth == 0) return finish(arrival);
  t_group.arrivals.push_back(std::move(arrival));
  return kNcclSuccess;
} catch (...) {
  return kNcclSystemError;
}

NcclResult split(ncclComm* parent, int color, int key, ncclComm** out) noexcept try {
  if (parent == nullptr || out == nullptr) return kNcclInvalidArgument;
  *out = nullptr;
  const std::string name = parent->name + "-" + std::to_string(parent->splits++);
  auto meeting = Rendezvous::join(name, parent->ranks, parent->rank, {parent->card, color, key});
  if (!meeting) return fail(kNcclSystemError, meeting.error().text);
  const auto facts = meeting->wait();
  if (!facts) return fail(kNcclSystemError, facts.error().text);
  if (color < 0) return kNcclSuccess;
  std::vector<std::pair<int, int>> members;  // key, rank there
  for (int rank = 0; rank < parent->ranks; ++rank) {
    const RankFacts& other = (*facts)[static_cast<size_t>(rank)];
    if (other.color == color) members.emplace_back(other.key, rank);
  }
  std::sort(members.begin(), members.end());
  auto comm = std::make_unique<ncclComm>(*parent);
  comm->ranks = static_cast<int>(members.size());
  comm->name = name + "-" + std::to_string(color);
  comm->splits = 0;
  comm->buffer = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].second == parent->rank) comm->rank = static_cast<int>(i);
  }
  const NcclResult held = hold_buffers(*comm);
  if (held == kNcclSuccess) *out = comm.release();
  return held;
} catch (...) {
  return kNcclSystemError;
}

NcclResult random_id(UniqueId* id) {
  if (id == nullptr) return kNcclInvalidArgument;
  const bool filled = ::getrandom(id->bytes, sizeof id->bytes, 0) == sizeof id->bytes;
  return filled ? kNcclSuccess : kNcclSystemError;
}

}  // namespace

#define NCCL_EXPORT LIBRARY_EXPORT
#define NCCL_UNSUPPORTED(name)    \
  NCCL_EXPORT int name(void) {    \
    note_unsupported_call(#name); \
    return kNcclInvalidUsage;     \
  }
#define NCCL_ACCEPT(name) \
  NCCL_EXPORT int name(void) { return kNcclSuccess; }
#include "simcuda/nccl/nccl_functions.def"

NCCL_EXPORT int ncclGetVersion(int* version) {
  if (version == nullptr) return kNcclInvalidArgument;
  *version = FRAGSCOPE_NCCL_VERSION;
  return kNcclSuccess;
}
NCCL_EXPORT int ncclGetUniqueId(UniqueId* id) { return random_id(id); }
NCCL_EXPORT int ncclCommGetUniqueId(ncclComm*, UniqueId* id) { return random_id(id); }
NCCL_EXPORT const char* ncclGetErrorString(int result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result < 0 || result > 7 ? "unknown result code" : kTexts[result];
}
NCCL_EXPORT const char* ncclGetLastError(ncclComm*) { return t_last_error.c_str(); }

NCCL_EXPORT int ncclCommInitRank(ncclComm** out, int ranks, UniqueId id, int rank) {
  return initialise(out, ranks, id, rank);
}
NCCL_EXPORT int ncclCommInitRankConfig(ncclComm** out, int ranks, UniqueId id, int rank, void*) {
  return initialise(out, ranks, id, rank);
}
NCCL_EXPORT int ncclCommInitRankScalable(ncclComm** out, int ranks, int rank, int ids,
                                         const UniqueId* id, void*) {
  return id == nullptr || ids < 1 ? kNcclInvalidArgument : initialise(out, ranks, *id, rank);
}
NCCL_EXPORT int ncclCommInitAll(ncclComm** out, int devices, const int* list) {
  static const auto retain = driver_call<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
  static const auto enter = driver_call<int (*)(void*)>("cuCtxPushCurrent_v2");
  static const auto leave = driver_call<int (*)(void**)>("cuCtxPopCurrent_v2");
  if (out == nullptr || devices < 1 || retain == nullptr) return kNcclInvalidArgument;
  UniqueId id;
  if (random_id(&id) != kNcclSuccess) return kNcclSystemError;
  NcclResult result = kNcclSuccess;
  ++t_group.depth;
  std::vector<void*> contexts(static_cast<size_t>(devices));
  for (int i = 0; i < devices && result == kNcclSuccess; ++i) {
    const int device = list == nullptr ? i : list[i];
    void* context = nullptr;
    if (retain(&context, device) != 0 || enter(context) != 0) {
      result = kNcclInvalidArgument;
      break;
    }
    result = initialise(out + i, devices, id, i);
    leave(&context);
    contexts[static_cast<size_t>(i)] = context;
  }
  --t_group.depth;
  std::vector<Arrival> arrivals = std::move(t_group.arrivals);
  t_group.arrivals.clear();
  for (size_t i = 0; i < arrivals.size() && result == kNcclSuccess; ++i) {
    void* context = contexts[i];
    enter(context);
    result = finish(arrivals[i]);
    leave(&context);
  }
  return result;
}
NCCL_EXPORT int ncclCommSplit(ncclComm* comm, int color, int key, ncclComm** out, void*) {
  return split(comm, color, key, out);
}
NCCL_EXPORT int ncclCommDestroy(ncclComm* comm) {
  release(comm);
  return kNcclSuccess;
}
NCCL_EXPORT int ncclCommAbort(ncclComm* comm) {
  release(comm);
  return kNcclSuccess;
}
NCCL_EXPORT int ncclCommGetAsyncError(ncclComm* comm, int* result) {
  if (comm == nullptr || result == nullptr) return kNcclInvalidArgument;
  *result = kNcclSuccess;
  return kNcclSuccess;
}
#define NCCL_FACT(name, member)                                           \
  NCCL_EXPORT int name(const ncclComm* comm, int* value) {                \
    if (comm == nullptr || value == nullptr) return kNcclInvalidArgument; \
    *value = comm->member;                                                \
    return kNcclSuccess;                                                  \
  }
NCCL_FACT(ncclCommCount, ranks)
NCCL_FACT(ncclCommUserRank, rank)
NCCL_FACT(ncclCommCuDevice, device)
NCCL_EXPORT int ncclCommRegister(ncclComm* comm, void*, size_t, void** handle) {
  if (comm == nullptr || handle == nullptr) return kNcclInvalidArgument;
  *handle = comm;
  return kNcclSuccess;
}
NCCL_EXPORT int ncclMemAlloc(void** out, size_t bytes) {
  static const auto allocate = driver_call<int (*)(void**, size_t)>("cuMemAlloc_v2");
  if (out == nullptr || allocate == nullptr) return kNcclInvalidArgument;
  return allocate(out, bytes) == 0 ? kNcclSuccess : kNcclUnhandledCudaError;
}
NCCL_EXPORT int ncclMemFree(void* pointer) {
  static const auto free = driver_call<int (*)(void*)>("cuMemFree_v2");
  if (pointer == nullptr || free == nullptr) return kNcclSuccess;
  return free(pointer) == 0 ? kNcclSuccess : kNcclUnhandledCudaError;
}
NCCL_EXPORT int ncclRedOpCreatePreMulSum(int* operation) {
  if (operation == nullptr) return kNcclInvalidArgument;
  *operation = 5;  // the first number after the built-in operations
  return kNcclSuccess;
}

NCCL_EXPORT int ncclGroupStart(void) {
  ++t_group.depth;
  return kNcclSuccess;
}
NCCL_EXPORT int ncclGroupEnd(void) {
  if (t_group.depth == 0) return kNcclInvalidUsage;
  if (--t_group.depth > 0) return kNcclSuccess;
  const std::vector<Exchange> exchanges = std::move(t_group.exchanges);
  std::vector<Arrival> arrivals = std::move(t_group.arrivals);
  t_group = {};
  for (Arrival& arrival : arrivals) {
    const NcclResult result = finish(arrival);
    if (result != kNcclSuccess) return result;
  }
  return settle(exchanges);
}

NCCL_EXPORT int ncclAllReduce(const void* send, void* receive, size_t count, int type, int,
                              ncclComm* comm, void* stream) {
  return comm == nullptr ? kNcclInvalidArgument
                         : copy(receive, send, bytes_of(type, count), stream);
}
NCCL_EXPORT int ncclReduce(const void* send, void* receive, size_t count, int type, int, int root,
                           ncclComm* comm, void* stream) {
  if (comm == nullptr) return kNcclInvalidArgument;
  return comm->rank == root ? copy(receive, send, bytes_of(type, count), stream) : kNcclSuccess;
}
NCCL_EXPORT int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root,
                              ncclComm* comm, void* stream) {
  if (comm == nullptr) return kNcclInvalidArgument;
  const bool sends = comm->rank == root;
  return exchange({comm, root, sends ? send : nullptr, receive, bytes_of(type, count), stream});
}
NCCL_EXPORT int ncclBcast(void* buffer, size_t, int, int, ncclComm* comm, void*) {
  return comm == nullptr || buffer == nullptr ? kNcclInvalidArgument : kNcclSuccess;
}
NCCL_EXPORT int ncclAllGather(const void* send, void* receive, size_t count, int type,
                              ncclComm* comm, void* stream) {
  if (comm == nullptr) return kNcclInvalidArgument;
  const size_t bytes = bytes_of(type, count);
  NcclResult result = kNcclSuccess;
  for (int rank = 0; rank < comm->ranks && result == kNcclSuccess; ++rank) {
    result = copy(at(receive, bytes * static_cast<size_t>(rank)), send, bytes, stream);
  }
  return result;
}
NCCL_EXPORT int ncclGather(const void* send, void* receive, size_t count, int type, int root,
                           ncclComm* comm, void* stream) {
  if (comm == nullptr) return kNcclInvalidArgument;
  return comm->rank == root ? ncclAllGather(send, receive, count, type, comm, stream)
                            : kNcclSuccess;
}
NCCL_EXPORT int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int,
                                  ncclComm* comm, void* stream) {
  if (comm == nullptr) return kNcclInvalidArgument;
  const size_t bytes = bytes_of(type, count);
  return copy(receive, at(send, bytes * static_cast<size_t>(comm->rank)), bytes, stream);
}
NCCL_EXPORT int ncclAlltoAll(const void* send, void* receive, size_t count, int type,
                             ncclComm* comm, void* stream) {
  if (comm == nullptr) return kNcclInvalidArgument;
  return copy(receive, send, bytes_of(type, count) * static_cast<size_t>(comm->ranks), stream);
}
NCCL_EXPORT int ncclSend(const void* send, size_t count, int type, int peer, ncclComm* comm,
                         void* stream) {
  return exchange({comm, peer, send, nullptr, bytes_of(type, count), stream});
}
NCCL_EXPORT int ncclRecv(void* receive, size_t count, int type, int peer, ncclComm* comm,
                         void* stream) {
  return exchange({comm, peer, nullptr, receive, bytes_of(type, count), stream});
}
