// Generated messages of every wording, damaged in every way people damage them, read back to the
// figures they were made of. A cut message gives a figure exactly or not at all.
#include <array>
#include <functional>
#include <random>

#include "base/bytes.h"
#include "diagnose/oom_message.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::diagnose;

namespace {

using Random = std::mt19937;

struct Printed {
  std::string text;
  uint64_t bytes = 0;
};

struct Message {
  std::string text;
  std::array<std::optional<uint64_t>, kFieldCount> bytes;
  std::optional<uint64_t> device;
  std::vector<std::pair<uint64_t, uint64_t>> processes;
};

uint32_t below(Random& random, uint32_t limit) { return static_cast<uint32_t>(random() % limit); }

std::string two_digits(uint32_t value) { return (value < 10 ? "0" : "") + std::to_string(value); }

// A size as c10 prints it, and the bytes of exactly these digits.
Printed print_size(Random& random) {
  static const std::array<std::string, 3> kNames = {"KiB", "MiB", "GiB"};
  const uint32_t kind = below(random, 8);
  if (kind == 0) {
    const uint32_t count = below(random, 2) == 0 ? 0 : below(random, 1025);
    return {std::to_string(count) + " bytes", count};
  }
  const uint32_t unit = kind < 3 ? 0 : kind < 5 ? 1 : 2;
  const uint32_t whole = 1 + below(random, unit == 2 ? 190 : 1023);
  const uint32_t digits = below(random, 100);
  const uint64_t scale = unit == 0 ? kKiB : unit == 1 ? kMiB : kGiB;
  return {std::to_string(whole) + "." + two_digits(digits) + " " + kNames[unit],
          (uint64_t{whole} * 100 + digits) * scale / 100 +
              ((uint64_t{whole} * 100 + digits) * scale % 100 >= 50 ? 1 : 0)};
}

class Builder {
 public:
  explicit Builder(Random& random) : random_(random) {}

  Builder& text(const std::string& text) {
    message_.text += text;
    return *this;
  }
  Builder& size(Field field) {
    const Printed printed = print_size(random_);
    message_.bytes[static_cast<size_t>(field)] = printed.bytes;
    return text(printed.text);
  }
  Builder& device() {
    message_.device = below(random_, 16);
    return text(std::to_string(*message_.device));
  }
  Builder& process() {
    const Printed printed = print_size(random_);
    const uint64_t pid = 1 + below(random_, 4000000);
    message_.processes.emplace_back(pid, printed.bytes);
    return text("Process " + std::to_string(pid) + " has " + printed.text + " memory in use. ");
  }
  bool maybe() { return below(random_, 2) == 0; }
  uint32_t up_to(uint32_t limit) { return below(random_, limit + 1); }
  Message take() { return std::move(message_); }

 private:
  Random& random_;
  Message message_;
};

Message legacy(Random& random) {
  Builder b(random);
  const uint32_t wording = b.up_to(3);  // A, B, C, D
  b.text("RuntimeError: CUDA out of memory. Tried to allocate ").size(Field::kTried);
  b.text(" (GPU ").device().text("; ").size(Field::kTotal).text(" total capacity; ");
  b.size(Field::kAllocated).text(" already allocated; ").size(Field::kFree).text(" free; ");
  if (wording == 0) return b.size(Field::kCached).text(" cached)").take();
  if (wording >= 2 && b.maybe()) b.size(Field::kAllowed).text(" allowed; ");
  b.size(Field::kReserved).text(" reserved in total by PyTorch)");
  if (wording == 3) {
    b.text(
        " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
        "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF");
  }
  return b.take();
}

Message current(Random& random) {
  Builder b(random);
  b.text("torch.OutOfMemoryError: ").text(b.maybe() ? "CUDA" : "HIP");
  b.text(" out of memory. Tried to allocate ").size(Field::kTried).text(". GPU ").device();
  b.text(b.maybe() ? " has a total capacty of " : " has a total capacity of ");
  b.size(Field::kTotal).text(" of which ").size(Field::kFree).text(" is free. ");
  for (uint32_t i = b.up_to(3); i > 0; --i) b.process();
  if (b.maybe()) {
    b.text("Including non-PyTorch memory, this process has ").size(Field::kProcessInUse);
    b.text(" memory in use. ");
  }
  if (b.maybe()) b.size(Field::kAllowed).text(" allowed; ");
  b.text("Of the allocated memory ").size(Field::kAllocated).text(" is allocated by PyTorch, ");
  if (b.maybe()) {
    b.text("with ").size(Field::kPrivatePools);
    b.text(" allocated in private pools (e.g., CUDA Graphs), ");
  }
  b.text("and ").size(Field::kUnallocated).text(" is reserved by PyTorch but unallocated. If ");
  return b
      .text(
          "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF="
          "expandable_segments:True to avoid fragmentation.")
      .take();
}

Message async(Random& random) {
  Builder b(random);
  b.text("Allocation on device ").device();
  b.text(" would exceed allowed memory. (out of memory)\nCurrently allocated     : ");
  b.size(Field::kAllocated).text("\nRequested               : ").size(Field::kTried);
  b.text("\nDevice limit            : ").size(Field::kTotal);
  b.text("\nFree (according to CUDA): ").size(Field::kFree);
  b.text("\nPyTorch limit (set by user-supplied memory fraction)\n                        : ");
  b.size(Field::kLimit).text("\n");
  Message message = b.take();
  message.bytes[static_cast<size_t>(Field::kAllowed)] =
      message.bytes[static_cast<size_t>(Field::kLimit)];
  return message;
}

Message generate(Random& random) {
  switch (below(random, 5)) {
    case 0:
      return async(random);
    case 1:
    case 2:
      return legacy(random);
    default:
      return current(random);
  }
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string wrap(const std::string& text, size_t width, const std::string& newline) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += width) out += text.substr(at, width) + newline;
  return out;
}

std::string comma_decimals(std::string text) {
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    const bool inside = std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0 &&
                        std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0;
    if (text[i] == '.' && inside) text[i] = ',';
  }
  return text;
}

using Damage = std::function<std::string(const std::string&, Random&)>;

const std::vector<Damage>& damages() {
  static const std::vector<Damage> kDamages = {
      [](const std::string& t, Random&) { return t; },
      [](const std::string& t, Random& r) { return wrap(t, 20 + below(r, 160), "\n"); },
      [](const std::string& t, Random& r) { return wrap(t, 20 + below(r, 160), "\r\n"); },
      [](const std::string& t, Random& r) { return wrap(t, 20 + below(r, 160), "\n    "); },
      [](const std::string& t, Random& r) {
        return "{\"level\": \"error\", \"text\": \"" +
               replace_all(wrap(t, 40 + below(r, 99), "\n"), "\n", "\\n") + "\", \"id\": 7}";
      },
      [](const std::string& t, Random&) {
        return replace_all(t, "memory", "\x1b[31mmemory\x1b[0m");
      },
      [](const std::string& t, Random&) {
        return "[rank2]: " + replace_all(t, "\n", "\n[rank2]: ");
      },
      [](const std::string& t, Random&) {
        return "2031-02-03 04:05:06,789 ERROR " +
               replace_all(t, "\n", "\n2031-02-03 04:05:06,790 ERROR ");
      },
      [](const std::string& t, Random&) {
        return replace_all(replace_all(replace_all(t, "GiB", "GB"), "MiB", "MB"), "KiB", "KB");
      },
      [](const std::string& t, Random&) {
        return replace_all(replace_all(replace_all(t, " GiB", "GiB"), " MiB", "MiB"), " bytes",
                           "B");
      },
      [](const std::string& t, Random&) { return comma_decimals(t); },
      [](const std::string& t, Random&) {
        return "Error in (function (self, other)  : \n  " + t +
               "\nException raised from malloc at ../c10/cuda/CUDACachingAllocator.cpp:42 (most "
               "recent call first):\nframe #0: c10::Error::Error(c10::SourceLocation, ...)";
      },
      [](const std::string& t, Random&) {
        return "> " + replace_all(wrap(t, 72, "\n"), "\n", "\n> ");
      },
      [](const std::string& t, Random&) {
        return std::string("\0\xff\xfe garbage\n", 12) + t + std::string("\n\0\0\xc3", 4);
      },
  };
  return kDamages;
}

void check_equal(const Message& message, const OomFacts& facts) {
  for (size_t i = 0; i < kFieldCount; ++i) {
    INFO(field_name(static_cast<Field>(i)));
    const auto& figure = facts.figures[i];
    CHECK((figure ? std::optional<uint64_t>(figure->bytes) : std::nullopt) == message.bytes[i]);
    if (figure) CHECK((figure->low <= figure->bytes && figure->bytes <= figure->high));
  }
  CHECK(facts.device_index == message.device);
  REQUIRE(facts.listed_processes.size() == message.processes.size());
  for (size_t i = 0; i < message.processes.size(); ++i) {
    CHECK(facts.listed_processes[i].pid == message.processes[i].first);
    CHECK(facts.listed_processes[i].in_use.bytes == message.processes[i].second);
  }
}

void check_exact_or_absent(const Message& message, const OomFacts& facts) {
  for (size_t i = 0; i < kFieldCount; ++i) {
    INFO(field_name(static_cast<Field>(i)));
    const auto& figure = facts.figures[i];
    if (figure) CHECK(std::optional<uint64_t>(figure->bytes) == message.bytes[i]);
  }
}

}  // namespace

TEST_CASE("a damaged message reads back to its figures") {
  Random random(20310504);
  for (int round = 0; round < 300; ++round) {
    const Message message = generate(random);
    for (size_t i = 0; i < damages().size(); ++i) {
      const std::string text = damages()[i](message.text, random);
      INFO("damage " << i << "\n" << text);
      const MessageScan scan = scan_message(text);
      REQUIRE(scan.message);
      CHECK(scan.messages == 1);
      check_equal(message, *scan.message);
    }
  }
}

TEST_CASE("a cut message gives a figure exactly or not at all") {
  Random random(7);
  for (int round = 0; round < 1500; ++round) {
    const Message message = generate(random);
    const size_t from = below(random, static_cast<uint32_t>(message.text.size()));
    const bool head = below(random, 2) == 0;
    const std::string text = head ? message.text.substr(from) : message.text.substr(0, from);
    INFO(text);
    const MessageScan scan = scan_message(text);
    if (scan.message) check_exact_or_absent(message, *scan.message);
  }
}

TEST_CASE("pieces of any size give the same facts") {
  Random random(99);
  for (int round = 0; round < 40; ++round) {
    const Message message = generate(random);
    const std::string text = std::string(below(random, 200000), 'x') + "\n" + message.text;
    MessageScanner scanner;
    for (size_t at = 0; at < text.size();) {
      const size_t take = 1 + below(random, 70000);
      scanner.feed(std::string_view(text).substr(at, take));
      at += take;
    }
    const MessageScan scan = scanner.finish();
    REQUIRE(scan.message);
    check_equal(message, *scan.message);
  }
}

TEST_CASE("random bytes and random phrases are survived") {
  Random random(5);
  const std::vector<std::string> words = {"CUDA out of memory. ",
                                          "Tried to allocate ",
                                          "2.00 GiB ",
                                          "(GPU ",
                                          "0; ",
                                          " free; ",
                                          "17179869184.00 GiB ",
                                          "memory in use. ",
                                          "Process ",
                                          "99999999999999999999 ",
                                          "has ",
                                          "Device 0 OOM ",
                                          "/ ",
                                          "Free memory on device (",
                                          "RESOURCE_EXHAUSTED ",
                                          "NPU out of memory ",
                                          "\\u001b[",
                                          "\x1b[",
                                          "\\",
                                          "already allocated; ",
                                          "9,999,999 bytes",
                                          ")",
                                          "\n",
                                          "pin_memory"};
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (uint32_t i = below(random, 60); i > 0; --i) {
      if (below(random, 3) == 0) {
        text.push_back(static_cast<char>(random()));
      } else {
        text += words[below(random, static_cast<uint32_t>(words.size()))];
      }
    }
    const MessageScan scan = scan_message(text, text);
    CHECK(scan.message.has_value() == (scan.messages > 0));
  }
}
