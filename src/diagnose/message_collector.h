// Puts phrases together to messages: what belongs to which, what refines what, which one decides.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "diagnose/oom_message.h"
#include "diagnose/phrases.h"

namespace fragscope::diagnose {

class MessageCollector {
 public:
  // Messages are neither opened nor changed from here on: the text is about the circumstances.
  void start_context() { context_ = true; }

  // `phrase` starts at `at` of `text`; `base` is the position of text[0] in the whole input.
  void found(const Phrase& phrase, std::string_view text, size_t at, uint64_t base);

  // `text` is the end of the input in front of the context; `base` as above.
  void end_of_text(std::string_view text, uint64_t base);

  MessageScan finish();

 private:
  struct Place {
    std::string_view text;
    size_t at;
    size_t behind;
    uint64_t position;  // of `at` in the whole input
  };

  void open(const Phrase& phrase, const Place& place);
  bool continues_current(const Phrase& phrase, const Place& place) const;
  void start_message(Family family, const Place& place);
  void close_message();
  bool belongs_to_current(const Phrase& phrase, const Place& place) const;
  std::optional<Quantity> figure_of(const Phrase& phrase, const Place& place) const;
  void store(Field field, const Quantity& value);
  void read_special(const Phrase& phrase, const Place& place);
  void read_message_special(const Phrase& phrase, const Place& place);
  void read_device(std::optional<uint64_t> index, const Place& place);
  void read_process(const Place& place);
  void read_hami(const Place& place);
  void read_generic(const Place& place);
  void read_vllm_free(const Place& place);
  void read_julia_device(const Place& place);
  void read_rmm_sizes(const Place& place);
  void read_arena_free(const Place& place);
  void read_ggml_buffer(const Place& place);
  bool pinning_follows(const Place& place) const;
  void read_hint(Hint hint, const Place& place);

  bool context_ = false;
  std::optional<OomFacts> current_;
  std::string_view opened_by_;            // the phrase that began it (of the table: lives for ever)
  std::optional<OomFacts> last_;          // closed last
  std::optional<OomFacts> last_telling_;  // closed last and no echo
  uint64_t messages_ = 0;
  uint64_t growing_ = 0;  // messages in a row, each with more allocated bytes
  bool allocated_grew_ = false;
  std::optional<uint64_t> last_allocated_;

  std::optional<uint64_t> pending_device_;
  uint64_t pending_device_at_ = 0;
  std::array<std::optional<uint64_t>, static_cast<size_t>(Hint::kCount)> hint_at_;
  Hints context_hints_;
  std::optional<double> memory_fraction_;
  std::optional<double> gpu_memory_utilization_;
  std::optional<uint64_t> memlock_kib_;
};

}  // namespace fragscope::diagnose
