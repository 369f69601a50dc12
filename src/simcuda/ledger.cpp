#include "simcuda/ledger.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/file_limit.h"
#include "base/pid_namespace.h"

namespace fragscope::simcuda {

namespace {

constexpr uint64_t kMagic = 0x3252'4744'454c'5346;  // "FSLEDGR2"
constexpr int kSlots = 512;
constexpr int kKinds = 3;  // Ledger::Kind
constexpr int kNames = 120;
constexpr size_t kNameBytes = 56;
constexpr int kEvents = 4096;

}  // namespace

struct LedgerEvent {
  uint32_t pid;  // of its maker, as its slot has it; 0: free
  uint32_t generation;
  uint64_t start_ticks;
  uint64_t due_ns;
};

struct LedgerFile {
  uint64_t magic;  // written last
  uint64_t total_bytes;
  int32_t devices;
  pthread_mutex_t lock;
  struct Slot {
    uint32_t pid;            // 0: free
    uint32_t pid_namespace;  // in which it has that number
    uint64_t start_ticks;
    uint64_t used[model::kMaxDevices];
  } slots[kSlots];
  struct Name {
    char text[kNameBytes];
    uint64_t times;
    uint64_t largest;
  } names[kKinds][kNames];
  LedgerEvent events[kEvents];
};

namespace {

// Field 3 (state) and 22 (start time in clock ticks) of /proc/<pid>/stat; false: no such process.
bool process_state(uint32_t pid, char& state, uint64_t& start_ticks) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  const ssize_t length = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (length <= 0) return false;
  text[length] = '\0';
  const char* at = std::strrchr(text, ')');  // the command may contain blanks and brackets
  if (at == nullptr || std::sscanf(at, ") %c", &state) != 1) return false;
  at += 2;
  for (int field = 3; field < 22 && at != nullptr; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  if (at == nullptr) return false;
  start_ticks = std::strtoull(at, nullptr, 10);
  return true;
}

// A process of another pid namespace is not to be seen: it counts as alive.
bool is_alive(const LedgerFile::Slot& slot, uint32_t own_namespace) {
  if (slot.pid_namespace != own_namespace) return true;
  char state = 0;
  uint64_t start_ticks = 0;
  return process_state(slot.pid, state, start_ticks) && start_ticks == slot.start_ticks &&
         state != 'Z' && state != 'X';
}

void initialise(LedgerFile& file, int devices, uint64_t total_bytes) {
  file.devices = devices;
  file.total_bytes = total_bytes;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&file.lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  file.magic = kMagic;
}

Error broken(const char* path, const char* what) {
  return {ErrorCode::kInvalidArgument, std::string("ledger ") + path + ": " + what};
}

// Maps the file, creating and filling it under flock when it is empty.
Result<LedgerFile*> map_shared(const char* path, int devices, uint64_t total_bytes) {
  const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return broken(path, std::strerror(errno));
  if (::flock(fd, LOCK_EX) != 0) {
    ::close(fd);
    return broken(path, std::strerror(errno));
  }
  struct stat about {};
  const bool known = ::fstat(fd, &about) == 0;
  const bool fresh = known && about.st_size == 0;
  int failure = known ? 0 : errno;
  // Beyond the limit the kernel would end the program with SIGXFSZ.
  if (fresh && failure == 0 && !file_may_grow_to(sizeof(LedgerFile))) failure = EFBIG;
  if (fresh && failure == 0) failure = ::posix_fallocate(fd, 0, sizeof(LedgerFile));
  if (!fresh && about.st_size != sizeof(LedgerFile)) failure = EINVAL;
  void* at = failure != 0
                 ? MAP_FAILED
                 : ::mmap(nullptr, sizeof(LedgerFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (failure == 0 && at == MAP_FAILED) failure = errno;
  auto* file = static_cast<LedgerFile*>(at);
  if (failure == 0 && file->magic == 0) initialise(*file, devices, total_bytes);
  ::flock(fd, LOCK_UN);  // the mapping would keep the lock beyond close()
  ::close(fd);
  if (failure != 0) return broken(path, std::strerror(failure));
  if (file->magic != kMagic || file->devices != devices || file->total_bytes != total_bytes) {
    ::munmap(at, sizeof(LedgerFile));
    return broken(path, "belongs to another simulated machine");
  }
  return file;
}

}  // namespace

class Ledger::Lock {
 public:
  explicit Lock(LedgerFile& file) : file_(file) {
    if (pthread_mutex_lock(&file_.lock) == EOWNERDEAD) pthread_mutex_consistent(&file_.lock);
  }
  ~Lock() { pthread_mutex_unlock(&file_.lock); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  LedgerFile& file_;
};

Result<std::unique_ptr<Ledger>> Ledger::open(const char* path, int devices, uint64_t total_bytes) {
  if (path != nullptr && *path != '\0') {
    auto file = map_shared(path, devices, total_bytes);
    if (!file) return file.error();
    return std::unique_ptr<Ledger>(new Ledger(*file));
  }
  void* at = ::mmap(nullptr, sizeof(LedgerFile), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
  if (at == MAP_FAILED) return Error{ErrorCode::kNoSpace, "no memory for the ledger"};
  initialise(*static_cast<LedgerFile*>(at), devices, total_bytes);
  return std::unique_ptr<Ledger>(new Ledger(static_cast<LedgerFile*>(at)));
}

Ledger::~Ledger() { ::munmap(file_, sizeof(LedgerFile)); }

uint64_t Ledger::total_bytes() const { return file_->total_bytes; }

void Ledger::drop_dead() {
  const uint32_t own_namespace = own_pid_namespace();
  for (int i = 0; i < kSlots; ++i) {
    LedgerFile::Slot& slot = file_->slots[i];
    if (slot.pid != 0 && i != slot_ && !is_alive(slot, own_namespace))
      std::memset(&slot, 0, sizeof slot);
  }
}

void Ledger::drop_gone(const std::function<bool(uint32_t, uint64_t)>& is_gone) {
  const Lock lock(*file_);
  const uint32_t own_namespace = own_pid_namespace();
  for (LedgerFile::Slot& slot : file_->slots) {
    const bool foreign = slot.pid != 0 && slot.pid_namespace != own_namespace;
    if (foreign && is_gone(slot.pid, slot.start_ticks)) std::memset(&slot, 0, sizeof slot);
  }
}

// -1: all slots belong to live processes.
int Ledger::own_slot() {
  if (slot_ >= 0) return slot_;
  char state = 0;
  LedgerFile::Slot mine{};
  mine.pid = static_cast<uint32_t>(::getpid());
  mine.pid_namespace = own_pid_namespace();
  if (!process_state(mine.pid, state, mine.start_ticks)) return -1;
  // The same process before an exec: its context and memory ended with its old program.
  for (LedgerFile::Slot& slot : file_->slots) {
    const bool same = slot.pid == mine.pid && slot.pid_namespace == mine.pid_namespace &&
                      slot.start_ticks == mine.start_ticks;
    if (same) slot = {};
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (int i = 0; i < kSlots; ++i) {
      if (file_->slots[i].pid != 0) continue;
      file_->slots[i] = mine;
      return slot_ = i;
    }
    drop_dead();
  }
  return -1;
}

void Ledger::claim() {
  const Lock lock(*file_);
  own_slot();
}

bool Ledger::charge(int device, uint64_t bytes) {
  const Lock lock(*file_);
  const int mine = own_slot();
  if (mine < 0) return false;
  for (int attempt = 0; attempt < 2; ++attempt) {
    uint64_t used = 0;
    for (const LedgerFile::Slot& slot : file_->slots) used += slot.used[device];
    if (used <= file_->total_bytes && bytes <= file_->total_bytes - used) {
      file_->slots[mine].used[device] += bytes;
      return true;
    }
    if (attempt == 0) drop_dead();
  }
  return false;
}

void Ledger::refund(int device, uint64_t bytes) {
  const Lock lock(*file_);
  if (slot_ < 0) return;
  uint64_t& used = file_->slots[slot_].used[device];
  used -= bytes < used ? bytes : used;
}

uint64_t Ledger::used(int device) {
  uint64_t used = 0;
  for (const Tenant& tenant : tenants(device)) used += tenant.bytes;
  return used;
}

uint64_t Ledger::used_by_this_process(int device) {
  const Lock lock(*file_);
  return slot_ < 0 ? 0 : file_->slots[slot_].used[device];
}

std::vector<Ledger::Tenant> Ledger::tenants(int device) {
  const Lock lock(*file_);
  drop_dead();
  std::vector<Tenant> found;
  for (const LedgerFile::Slot& slot : file_->slots) {
    if (slot.used[device] != 0) found.push_back({slot.pid, slot.used[device]});
  }
  return found;
}

void Ledger::drop_events_of_dead() {
  drop_dead();
  for (LedgerEvent& event : file_->events) {
    const bool alive = std::any_of(
        std::begin(file_->slots), std::end(file_->slots), [&](const LedgerFile::Slot& slot) {
          return slot.pid == event.pid && slot.start_ticks == event.start_ticks;
        });
    if (!alive) event.pid = 0;
  }
}

std::optional<Ledger::SharedEvent> Ledger::share_event() {
  const Lock lock(*file_);
  const int mine = own_slot();
  if (mine < 0) return std::nullopt;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (int i = 0; i < kEvents; ++i) {
      LedgerEvent& event = file_->events[i];
      if (event.pid != 0) continue;
      event.pid = file_->slots[mine].pid;
      event.start_ticks = file_->slots[mine].start_ticks;
      event.due_ns = 0;
      return SharedEvent{i, ++event.generation};
    }
    drop_events_of_dead();
  }
  return std::nullopt;
}

// Null: not an event of this ledger, or over.
LedgerEvent* Ledger::find_event(const SharedEvent& event) {
  if (event.number < 0 || event.number >= kEvents) return nullptr;
  LedgerEvent& found = file_->events[event.number];
  return found.pid != 0 && found.generation == event.generation ? &found : nullptr;
}

void Ledger::unshare_event(const SharedEvent& event) {
  const Lock lock(*file_);
  if (LedgerEvent* const found = find_event(event)) found->pid = 0;
}

void Ledger::set_event(const SharedEvent& event, uint64_t due_ns) {
  const Lock lock(*file_);
  if (LedgerEvent* const found = find_event(event)) found->due_ns = due_ns;
}

uint64_t Ledger::event_due(const SharedEvent& event) {
  const Lock lock(*file_);
  const LedgerEvent* const found = find_event(event);
  return found != nullptr ? found->due_ns : 0;
}

void Ledger::note(Kind kind, const char* name, uint64_t bytes) {
  const Lock lock(*file_);
  LedgerFile::Name* const rows = file_->names[static_cast<int>(kind)];
  for (int i = 0; i < kNames; ++i) {
    LedgerFile::Name& row = rows[i];
    const char* text = i == kNames - 1 ? "other" : name;
    if (row.text[0] == '\0') std::strncpy(row.text, text, kNameBytes - 1);
    if (std::strncmp(row.text, text, kNameBytes - 1) != 0) continue;
    ++row.times;
    row.largest = std::max(row.largest, bytes);
    return;
  }
}

std::vector<Ledger::Noted> Ledger::noted(Kind kind) {
  const Lock lock(*file_);
  std::vector<Noted> found;
  for (const LedgerFile::Name& row : file_->names[static_cast<int>(kind)]) {
    if (row.times != 0) found.push_back({row.text, row.times, row.largest});
  }
  return found;
}

}  // namespace fragscope::simcuda
