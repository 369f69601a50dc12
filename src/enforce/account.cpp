#include "enforce/account.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "enforce/process_identity.h"

namespace fragscope::enforce {
namespace {

constexpr char kMagic[8] = {'F', 'S', 'A', 'C', 'C', 'T', '\r', '\n'};
constexpr uint32_t kVersion = 1;
constexpr int kMaxLines = 1024;  // processes that hold memory at a time
constexpr int kRows = 33;        // cards of a machine, and pinned memory
constexpr int kPinnedRow = 0;

Error system_error(const std::string& path, const char* what) {
  const ErrorCode code =
      errno == ENOSPC || errno == EDQUOT ? ErrorCode::kNoSpace : ErrorCode::kPermission;
  return {code, path + ": " + what + ": " + std::strerror(errno)};
}

}  // namespace

struct SharedAccount::Line {
  uint32_t pid;  // 0: free
  uint32_t pid_namespace;
  uint64_t start_ticks;
  uint64_t used[kRows];
};

struct SharedAccount::Page {
  char magic[8];
  uint32_t version;
  uint32_t lines_used;  // none beyond this was ever taken
  pthread_mutex_t lock;
  struct {
    DeviceUuid uuid;
    uint32_t taken;
  } rows[kRows];
  Line lines[kMaxLines];
};

// A member that dies with the lock leaves whole numbers behind: each is changed by one store.
class SharedAccount::Locked {
 public:
  explicit Locked(Page& page) : page_(page) {
    if (pthread_mutex_lock(&page_.lock) == EOWNERDEAD) pthread_mutex_consistent(&page_.lock);
    page_.lines_used = std::min<uint32_t>(page_.lines_used, kMaxLines);  // whoever wrote it
  }
  ~Locked() { pthread_mutex_unlock(&page_.lock); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  void clear_gone() {
    for (uint32_t i = 0; i < page_.lines_used; ++i) {
      Line& line = page_.lines[i];
      const ProcessIdentity holder{line.pid, line.pid_namespace, line.start_ticks};
      if (line.pid != 0 && !holds_memory(holder)) line = Line{};
    }
  }

  // The line of this process, emptied: an image before this one (exec) left it.
  Line* own_line() {
    const ProcessIdentity self = own_identity();
    for (uint32_t i = 0; i < page_.lines_used; ++i) {
      Line& line = page_.lines[i];
      const bool same = line.pid == self.pid && line.pid_namespace == self.pid_namespace;
      if (same) return begin(line, self);
    }
    if (Line* line = free_line()) return begin(*line, self);
    clear_gone();
    Line* const line = free_line();
    return line != nullptr ? begin(*line, self) : nullptr;
  }

 private:
  Line* free_line() {
    for (uint32_t i = 0; i < page_.lines_used; ++i) {
      if (page_.lines[i].pid == 0) return &page_.lines[i];
    }
    return page_.lines_used < kMaxLines ? &page_.lines[page_.lines_used++] : nullptr;
  }
  static Line* begin(Line& line, const ProcessIdentity& self) {
    line = Line{};
    line.start_ticks = self.start_ticks;
    line.pid_namespace = self.pid_namespace;
    line.pid = self.pid;
    return &line;
  }

  Page& page_;
};

bool LocalAccount::take(int purse, uint64_t bytes, uint64_t limit) {
  uint64_t& used = used_[at(purse)];
  if (used > limit || bytes > limit - used) return false;
  used += bytes;
  return true;
}

void LocalAccount::give_back(int purse, uint64_t bytes) {
  uint64_t& used = used_[at(purse)];
  used -= std::min(used, bytes);
}

// Made whole under another name first: whoever finds the name finds a finished account.
Status create_account(const std::string& path) {
  const std::string draft = path + "." + std::to_string(::getpid());
  const int fd = ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return system_error(draft, "cannot be made");
  const auto give_up = [&](const char* what) {
    const Error error = system_error(draft, what);
    ::close(fd);
    ::unlink(draft.c_str());
    return error;
  };
  constexpr size_t kBytes = sizeof(SharedAccount::Page);
  if ((errno = ::posix_fallocate(fd, 0, kBytes)) != 0) return give_up("has no room");
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return give_up("cannot be mapped");
  auto& page = *static_cast<SharedAccount::Page*>(memory);
  page.version = kVersion;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&page.lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  page.rows[kPinnedRow].taken = 1;
  std::memcpy(page.magic, kMagic, sizeof kMagic);
  ::munmap(memory, kBytes);
  const bool named = ::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST;
  if (!named) return give_up("cannot be named");
  ::close(fd);
  ::unlink(draft.c_str());
  return Done{};
}

Result<std::unique_ptr<SharedAccount>> SharedAccount::open(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  int fd = ::open(path.c_str(), kFlags);
  if (fd < 0 && errno == ENOENT) {
    const Status made = create_account(path);
    if (!made) return made.error();
    fd = ::open(path.c_str(), kFlags);
  }
  if (fd < 0) return system_error(path, "cannot be opened");
  struct stat about {};
  const bool fits = ::fstat(fd, &about) == 0 && about.st_size == sizeof(Page);
  void* const memory =
      fits ? ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  ::close(fd);
  if (!fits) return Error{ErrorCode::kForeign, path + ": not an account of fragscope"};
  if (memory == MAP_FAILED) return system_error(path, "cannot be mapped");
  auto* const page = static_cast<Page*>(memory);
  std::optional<Error> error;
  Line* line = nullptr;
  if (std::memcmp(page->magic, kMagic, sizeof kMagic) != 0) {
    error = Error{ErrorCode::kForeign, path + ": not an account of fragscope"};
  } else if (page->version != kVersion) {
    error = Error{ErrorCode::kNewerVersion, path + ": an account of another version of fragscope"};
  } else if (line = Locked(*page).own_line(); line == nullptr) {
    error = Error{ErrorCode::kNoSpace, path + ": too many processes share this account"};
  }
  if (error) {
    ::munmap(memory, sizeof(Page));
    return *error;
  }
  return std::unique_ptr<SharedAccount>(new SharedAccount(page, line));
}

SharedAccount::SharedAccount(Page* page, Line* line) : page_(page), line_(line) {
  rows_.fill(-1);
  rows_[kPinnedPurse] = kPinnedRow;
}

SharedAccount::~SharedAccount() {
  if (line_ != nullptr) {
    const Locked lock(*page_);
    *line_ = Line{};
  }
  ::munmap(page_, sizeof(Page));
}

int SharedAccount::row(int purse) const { return rows_[static_cast<size_t>(purse)]; }

uint64_t SharedAccount::sum(const Page& page, int row) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < page.lines_used; ++i) {
    if (page.lines[i].pid != 0) total += page.lines[i].used[row];
  }
  return total;
}

bool SharedAccount::take(int purse, uint64_t bytes, uint64_t limit) {
  const int at = row(purse);
  if (at < 0) return true;
  Locked lock(*page_);
  const auto fits = [&] {
    const uint64_t used = sum(*page_, at);
    return used <= limit && bytes <= limit - used;
  };
  if (!fits()) {
    lock.clear_gone();
    if (!fits()) return false;
  }
  line_->used[at] += bytes;
  return true;
}

void SharedAccount::add(int purse, uint64_t bytes) {
  const int at = row(purse);
  if (at < 0) return;
  const Locked lock(*page_);
  line_->used[at] += bytes;
}

void SharedAccount::give_back(int purse, uint64_t bytes) {
  const int at = row(purse);
  if (at < 0) return;
  const Locked lock(*page_);
  line_->used[at] -= std::min(line_->used[at], bytes);
}

uint64_t SharedAccount::used(int purse) {
  const int at = row(purse);
  if (at < 0) return 0;
  Locked lock(*page_);
  lock.clear_gone();
  return sum(*page_, at);
}

void SharedAccount::name_device(int purse, const DeviceUuid& uuid) {
  if (row(purse) >= 0) return;
  const Locked lock(*page_);
  for (int at = kPinnedRow + 1; at < kRows; ++at) {
    auto& candidate = page_->rows[at];
    if (candidate.taken != 0 && candidate.uuid != uuid) continue;
    candidate.uuid = uuid;
    candidate.taken = 1;
    rows_[static_cast<size_t>(purse)] = at;
    return;
  }
}

}  // namespace fragscope::enforce
