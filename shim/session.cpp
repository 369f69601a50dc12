#include "shim/session.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shim/call_stack.h"
#include "shim/caps.h"
#include "shim/coverage.h"
#include "shim/elf_lookup.h"
#include "shim/export.h"
#include "shim/live_settings.h"
#include "shim/log_file.h"
#include "shim/policy.h"
#include "shim/process_facts.h"
#include "shim/python_runtime.h"
#include "shim/real_api.h"
#include "shim/thread_state.h"
#include "shim/torch_blocks.h"

namespace fragscope::shim {

constinit thread_local ThreadState t_state{};

namespace {

// Lives in a page that the kernel clears in a forked child: that is how the child knows that it has
// no session, without a fork handler and without asking for its pid at every call.
// Kernels that cannot (before Linux 4.14, gVisor) cost a getpid() per call instead.
struct ForkPage {
  std::atomic<Session*> session;
  std::atomic<bool> given_up;
  pid_t owner;  // 0: the kernel clears the page
};

constinit std::atomic<ForkPage*> g_page;

// The page of this process; nullptr when there is none yet.
ForkPage* current_page() {
  ForkPage* const page = g_page.load(std::memory_order_acquire);
  if (page == nullptr || page->owner == 0 || page->owner == getpid()) return page;
  return nullptr;
}

ForkPage* fork_page() {
  if (ForkPage* const page = current_page()) return page;
  ForkPage* page = g_page.load(std::memory_order_acquire);  // none, or the parent's
  constexpr size_t kBytes = 4096;
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const mine = static_cast<ForkPage*>(memory);  // zero bytes are a valid, empty ForkPage
  if (madvise(memory, kBytes, MADV_WIPEONFORK) != 0) mine->owner = getpid();
  if (g_page.compare_exchange_strong(page, mine)) return mine;
  munmap(memory, kBytes);
  return page;
}

uint64_t number_from(const char* variable, uint64_t fallback) {
  const char* const text = secure_getenv(variable);
  if (text == nullptr) return fallback;
  uint64_t value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end ? value : fallback;
}

// "4096", "64KiB", "1MiB", "2GiB", also K, M, G and KB, MB, GB for the same; 0 for anything else.
uint64_t size_from(const char* variable) {
  const char* const text = secure_getenv(variable);
  if (text == nullptr) return 0;
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc()) return 0;
  constexpr std::string_view kUnits = "KMG";
  const std::string_view unit(stop);
  if (unit.empty() || unit == "B") return value;
  const size_t power = kUnits.find(unit.front());
  const std::string_view rest = unit.substr(1);
  if (power == kUnits.npos || !(rest.empty() || rest == "B" || rest == "iB")) return 0;
  const unsigned shift = 10 * (static_cast<unsigned>(power) + 1);
  return value > UINT64_MAX >> shift ? UINT64_MAX : value << shift;
}

bool is_set_to(const char* variable, const char* value) {
  const char* const text = secure_getenv(variable);
  return text != nullptr && std::strcmp(text, value) == 0;
}

Settings read_settings() {
  Settings settings;
  settings.log_bytes = number_from("FRAGSCOPE_LOG_BYTES", settings.log_bytes);
  settings.stack_depth =
      static_cast<uint32_t>(number_from("FRAGSCOPE_STACK_DEPTH", settings.stack_depth));
  if (settings.stack_depth > kMaxStackDepth) settings.stack_depth = kMaxStackDepth;
  const bool all =
      secure_getenv("FRAGSCOPE_STACKS") == nullptr || is_set_to("FRAGSCOPE_STACKS", "both");
  settings.native_stacks =
      (all || is_set_to("FRAGSCOPE_STACKS", "native")) && settings.stack_depth != 0;
  settings.forked_in_unwinder = settings.native_stacks && is_unwinder_entered();
  settings.native_stacks =
      settings.native_stacks && !settings.forked_in_unwinder && open_unwinder();
  settings.python_stacks =
      (all || is_set_to("FRAGSCOPE_STACKS", "python")) && settings.stack_depth != 0;
  settings.min_stack_bytes = size_from("FRAGSCOPE_MIN_SIZE");
  settings.ring = is_set_to("FRAGSCOPE_RING", "1");
  settings.enforce = policy::enabled();
  return settings;
}

struct PathCount {
  Session* session;
  unsigned count;
};

// Which copies of the runtime are loaded: "cudart.0=/usr/lib/libcudart.so.13". Said again, at the
// end, only if there are more: a full log counts what it cannot take.
void write_runtime_copies(Session& session) {
  PathCount state{nullptr, 0};
  for_each_object(
      [](const LoadedObject& object, void* context) {
        if (std::strncmp(soname(object), "libcudart", 9) == 0) {
          ++static_cast<PathCount*>(context)->count;
        }
        return false;
      },
      &state);
  if (session.runtime_copies.exchange(state.count) >= state.count) return;
  state = {&session, 0};
  for_each_object(
      [](const LoadedObject& object, void* context) {
        auto* const counter = static_cast<PathCount*>(context);
        if (std::strncmp(soname(object), "libcudart", 9) != 0) return false;
        const char key[] = {'c', 'u', 'd', 'a',
                            'r', 't', '.', static_cast<char>('0' + counter->count++ % 10),
                            '\0'};
        counter->session->write_property(key, object.path);
        return false;
      },
      &state);
}

const char* stacks_text(const Settings& settings) {
  if (settings.native_stacks) return settings.python_stacks ? "both" : "native";
  return settings.python_stacks ? "python" : "none";
}

void write_facts(Session& session, uint64_t capacity_bytes) {
  for (size_t id = 1; id < kHookCount; ++id) {
    session.writer.write_blob(log::BlobKind::api_name, static_cast<uint32_t>(id),
                              std::string_view(kHooks[id].symbol));
  }
  session.write_property("log.capacity_bytes", capacity_bytes);
  session.write_property("log.when_full", session.settings.ring ? "ring" : "stop");
  session.write_property("stacks", stacks_text(session.settings));
  if (session.settings.forked_in_unwinder) {
    session.write_property("native_stacks",
                           "none: forked while another thread was taking a native stack");
  }
  session.write_property("enforce", policy::mode());
  note_enforcement(session, policy::who_enforces());
  if (const std::string problem = policy::problem(); !problem.empty()) {
    session.write_property("enforce.problem", problem);
  }
  if (session.settings.min_stack_bytes != 0) {
    session.write_property("stacks.min_bytes", session.settings.min_stack_bytes);
  }
  const char* const policy_settings = secure_getenv("FRAGSCOPE_ALLOC_CONF");
  if (session.settings.enforce && policy_settings != nullptr) {
    session.write_property("alloc_conf", policy_settings);
  }
  session.write_property("block_source", "none");
  caps::describe(session);
  write_runtime_copies(session);
}

Session* build_session(std::optional<OpenLog>& log) {
  const Settings settings = read_settings();
  const uint64_t id = random_id();
  log = create_log(settings.log_bytes, settings.ring, id);
  if (!log) return nullptr;
  void* const memory = mmap(nullptr, sizeof(Session), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    discard_log(*log);
    return nullptr;
  }
  auto* const session = new (memory) Session{};
  session->writer = log->writer;
  session->settings = settings;
  session->id = id;
  if (!session->stacks.map())
    session->settings.native_stacks = session->settings.python_stacks = false;
  static_cast<void>(session->texts.map(size_t{1} << 16));  // without it texts are logged each time
  if (session->settings.python_stacks) {
    if (!session->python.map()) session->settings.python_stacks = false;
    look_for_python();
  }
  write_facts(*session, log->capacity_bytes);
  if (session->settings.python_stacks) report_python(*session);
  return session;
}

Session* create_session(ForkPage& page) noexcept try {
  std::optional<OpenLog> log;
  Session* const mine = build_session(log);
  if (mine == nullptr) {
    page.given_up.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  Session* winner = nullptr;
  if (page.session.compare_exchange_strong(winner, mine)) {
    publish_log(*log);
    return mine;
  }
  discard_log(*log);
  munmap(mine, sizeof(Session));
  return winner;
} catch (...) {
  page.given_up.store(true, std::memory_order_relaxed);
  return nullptr;
}

// exit() or return from main: from here on a collector need not suspect a crash. Nothing is torn
// down: static destructors of the host still free memory.
__attribute__((destructor)) void on_exit_handlers() noexcept {
  Session* const session = current_session();
  const ErrnoKeeper keep;
  if (session == nullptr) {
    if (find_object("libcuda.so.")) note_driver_seen();
    return;
  }
  report_coverage(*session);
  policy::write_plan_counts(*session);
  write_runtime_copies(*session);  // those that came after the session too
  session->writer.header()->finished.store(1, std::memory_order_release);
}

}  // namespace

void Session::write_property(std::string_view key, std::string_view value) noexcept {
  char text[512];
  if (key.size() + 1 + value.size() > sizeof text) {
    value = value.substr(0, sizeof text - 1 - key.size());
  }
  std::memcpy(text, key.data(), key.size());
  text[key.size()] = '=';
  std::memcpy(text + key.size() + 1, value.data(), value.size());
  writer.write_blob(log::BlobKind::property,
                    next_property.fetch_add(1, std::memory_order_relaxed) + 1,
                    std::string_view(text, key.size() + 1 + value.size()));
}

void Session::write_property(std::string_view key, uint64_t value) noexcept {
  char digits[20];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  static_cast<void>(error);  // 20 digits hold every uint64_t
  write_property(key, std::string_view(digits, static_cast<size_t>(end - digits)));
}

void report_python(Session& session) noexcept {
  uint32_t version = 0;
  const char* const status = python_status(version);
  if (session.reported_python.exchange(version, std::memory_order_relaxed) == version) return;
  session.write_property("python_stacks", status);
}

void report_coverage(Session& session) noexcept {
  const uint64_t total = coverage_total();
  if (session.reported_coverage.exchange(total, std::memory_order_relaxed) == total) return;
  for_each_coverage(
      [](const char* key, uint64_t count, void* context) {
        static_cast<Session*>(context)->write_property(key, count);
      },
      &session);
  for_each_static_runtime(
      [](unsigned number, const char* path, void* context) {
        const char key[] = {'c', 'u', 'd', 'a', 'r',
                            't', '_', 's', 't', 'a',
                            't', 'i', 'c', '.', static_cast<char>('0' + number),
                            '\0'};
        static_cast<Session*>(context)->write_property(key, path);
      },
      &session);
}

Session* current_session() noexcept {
  ForkPage* const page = current_page();
  return page != nullptr ? page->session.load(std::memory_order_acquire) : nullptr;
}

Session* get_or_create_session() noexcept {
  ForkPage* const page = fork_page();
  if (page == nullptr) return nullptr;
  Session* const session = page->session.load(std::memory_order_acquire);
  if (session != nullptr) return session;
  if (page->given_up.load(std::memory_order_relaxed) || !recording_wanted()) return nullptr;
  // A signal handler on top of our own creation must not start over.
  if (t_state.in_shim) return nullptr;
  t_state.in_shim = true;
  Session* const created = create_session(*page);
  t_state.in_shim = false;
  return created;
}

void load_what_recording_needs() noexcept {
  static constinit std::atomic<bool> began{false};
  if (!recording_wanted()) return;
  load_torch_adaptor();
  if (began.exchange(true, std::memory_order_relaxed)) return;
  const bool native = secure_getenv("FRAGSCOPE_STACKS") == nullptr ||
                      is_set_to("FRAGSCOPE_STACKS", "both") ||
                      is_set_to("FRAGSCOPE_STACKS", "native");
  if (native) static_cast<void>(open_unwinder());
  find_next_definitions();
}

bool recording_wanted() noexcept { return !is_set_to("FRAGSCOPE_DISABLE", "1"); }

}  // namespace fragscope::shim
