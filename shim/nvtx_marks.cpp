// NVTX marks and ranges. NVTX is headers in every library that uses it; each copy opens the library
// named by NVTX_INJECTION64_PATH (this one, set by `fragscope run`) at its first call and hands
// over its table of functions, which are put in place here. torch.cuda.nvtx and the nvtx package go
// this way.
//
// Facts: nvtxDetail/nvtxTypes.h and nvtxInitDefs.h of NVTX 3 (ids, tables, layout of the
// attributes); tests/torch/test_torch_stacks.py goes through the copies in PyTorch.
// Answers are those of NVTX without a tool, but for range ids and handles, which must be told
// apart.

#include "shim/nvtx_marks.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "shim/export.h"
#include "shim/marks.h"
#include "shim/session.h"

namespace fragscope::shim {
namespace {

using namespace nvtx;

constinit std::atomic<uint64_t> g_next_range{1};

// UTF-8 of what NVTX was given, in a buffer of its own.
class Text {
 public:
  Text() = default;
  explicit Text(const char* text) { add(text); }
  explicit Text(const wchar_t* text) { add(text); }

  void add(const char* text) {
    for (; text != nullptr && *text != '\0' && size_ < sizeof data_; ++text) data_[size_++] = *text;
  }
  void add(const wchar_t* text) {
    for (; text != nullptr && *text != L'\0' && size_ + 4 <= sizeof data_; ++text) {
      add_utf8(static_cast<uint32_t>(*text));
    }
  }
  std::string_view view() const { return {data_, size_}; }

 private:
  void add_utf8(uint32_t c) {
    if (c >= 0x110000 || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
    const auto tail = [&](unsigned shift) {
      data_[size_++] = static_cast<char>(0x80 | (c >> shift & 0x3F));
    };
    if (c < 0x80) {
      data_[size_++] = static_cast<char>(c);
    } else if (c < 0x800) {
      data_[size_++] = static_cast<char>(0xC0 | c >> 6);
      tail(0);
    } else if (c < 0x10000) {
      data_[size_++] = static_cast<char>(0xE0 | c >> 12);
      tail(6), tail(0);
    } else {
      data_[size_++] = static_cast<char>(0xF0 | c >> 18);
      tail(12), tail(6), tail(0);
    }
  }

  char data_[1000];
  size_t size_ = 0;
};

// Handles of domains and registered strings are C strings of ours, which live for ever. Null (no
// memory) is the default domain, or no text.
void* handle_of(std::string_view text) {
  auto* const handle = static_cast<char*>(std::malloc(text.size() + 1));
  if (handle == nullptr) return nullptr;
  std::memcpy(handle, text.data(), text.size());
  handle[text.size()] = '\0';
  return handle;
}

// "domain: message".
Text text_of(const void* domain, const Attributes* attributes) {
  Text text;
  if (domain != nullptr) {
    text.add(static_cast<const char*>(domain));
    text.add(": ");
  }
  if (attributes == nullptr || attributes->size < sizeof(Attributes)) return text;
  switch (attributes->message_type) {
    case kMessageAscii:
    case kMessageRegistered:
      text.add(static_cast<const char*>(attributes->message));
      break;
    case kMessageUnicode:
      text.add(static_cast<const wchar_t*>(attributes->message));
      break;
    default:
      break;
  }
  return text;
}

uint64_t start(std::string_view text) {
  const uint64_t range = g_next_range.fetch_add(1, std::memory_order_relaxed);
  log_mark(EventKind::range_start, text, range);
  return range;
}

int push(std::string_view text) {
  log_mark(EventKind::range_push, text);
  return kNoPushPopTracking;
}

void mark_ex(const Attributes* a) { log_mark(EventKind::mark, text_of(nullptr, a).view()); }
void mark_a(const char* text) { log_mark(EventKind::mark, Text(text).view()); }
void mark_w(const wchar_t* text) { log_mark(EventKind::mark, Text(text).view()); }
uint64_t range_start_ex(const Attributes* a) { return start(text_of(nullptr, a).view()); }
uint64_t range_start_a(const char* text) { return start(Text(text).view()); }
uint64_t range_start_w(const wchar_t* text) { return start(Text(text).view()); }
void range_end(uint64_t range) { log_mark(EventKind::range_end, {}, range); }
int range_push_ex(const Attributes* a) { return push(text_of(nullptr, a).view()); }
int range_push_a(const char* text) { return push(Text(text).view()); }
int range_push_w(const wchar_t* text) { return push(Text(text).view()); }
int range_pop() {
  log_mark(EventKind::range_pop, {});
  return kNoPushPopTracking;
}
void domain_mark_ex(void* domain, const Attributes* a) {
  log_mark(EventKind::mark, text_of(domain, a).view());
}
uint64_t domain_range_start_ex(void* domain, const Attributes* a) {
  return start(text_of(domain, a).view());
}
void domain_range_end(void*, uint64_t range) { range_end(range); }
int domain_range_push_ex(void* domain, const Attributes* a) {
  return push(text_of(domain, a).view());
}
int domain_range_pop(void*) { return range_pop(); }
void* register_string_a(void*, const char* text) { return handle_of(Text(text).view()); }
void* register_string_w(void*, const wchar_t* text) { return handle_of(Text(text).view()); }
void* domain_create_a(const char* name) { return handle_of(Text(name).view()); }
void* domain_create_w(const wchar_t* name) { return handle_of(Text(name).view()); }

struct Replacement {
  unsigned index;
  void* function;
};
#define FRAGSCOPE_NVTX(index, function) \
  { index, reinterpret_cast<void*>(function) }

void replace(const CallbackTable& callbacks, int module, const Replacement* replacements,
             size_t count) {
  void*** table = nullptr;
  unsigned size = 0;
  if (callbacks.get_module(module, &table, &size) == 0 || table == nullptr) return;
  for (size_t i = 0; i < count; ++i) {
    if (replacements[i].index < size && table[replacements[i].index] != nullptr) {
      *table[replacements[i].index] = replacements[i].function;
    }
  }
}

void install(const CallbackTable& callbacks) {
  const Replacement core[] = {
      FRAGSCOPE_NVTX(kMarkEx, mark_ex),
      FRAGSCOPE_NVTX(kMarkA, mark_a),
      FRAGSCOPE_NVTX(kMarkW, mark_w),
      FRAGSCOPE_NVTX(kRangeStartEx, range_start_ex),
      FRAGSCOPE_NVTX(kRangeStartA, range_start_a),
      FRAGSCOPE_NVTX(kRangeStartW, range_start_w),
      FRAGSCOPE_NVTX(kRangeEnd, range_end),
      FRAGSCOPE_NVTX(kRangePushEx, range_push_ex),
      FRAGSCOPE_NVTX(kRangePushA, range_push_a),
      FRAGSCOPE_NVTX(kRangePushW, range_push_w),
      FRAGSCOPE_NVTX(kRangePop, range_pop),
  };
  const Replacement core2[] = {
      FRAGSCOPE_NVTX(kDomainMarkEx, domain_mark_ex),
      FRAGSCOPE_NVTX(kDomainRangeStartEx, domain_range_start_ex),
      FRAGSCOPE_NVTX(kDomainRangeEnd, domain_range_end),
      FRAGSCOPE_NVTX(kDomainRangePushEx, domain_range_push_ex),
      FRAGSCOPE_NVTX(kDomainRangePop, domain_range_pop),
      FRAGSCOPE_NVTX(kRegisterStringA, register_string_a),
      FRAGSCOPE_NVTX(kRegisterStringW, register_string_w),
      FRAGSCOPE_NVTX(kDomainCreateA, domain_create_a),
      FRAGSCOPE_NVTX(kDomainCreateW, domain_create_w),
  };
  replace(callbacks, kModuleCore, core, std::size(core));
  replace(callbacks, kModuleCore2, core2, std::size(core2));
}

}  // namespace
}  // namespace fragscope::shim

// 1: stay loaded. Also where nothing is recorded: then nothing is put in place.
extern "C" FRAGSCOPE_EXPORT int InitializeInjectionNvtx2(
    fragscope::shim::nvtx::GetExportTable get_table) noexcept {
  using namespace fragscope::shim;
  if (get_table == nullptr || !recording_wanted()) return 1;
  const auto* const callbacks =
      static_cast<const nvtx::CallbackTable*>(get_table(nvtx::kCallbacksTable));
  if (callbacks != nullptr && callbacks->size >= sizeof *callbacks) install(*callbacks);
  return 1;
}
