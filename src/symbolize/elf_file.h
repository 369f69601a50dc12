// One ELF file on disk: its build-id, and which function and line an address of it belongs to.
//
// Addresses are the file's own (what nm prints). Separate debug files are found by build-id below
// /usr/lib/debug and the given places. Ownership: holds the file open. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "symbolize/symbolizer.h"

namespace fragscope::symbolize {

class ElfFile {
 public:
  explicit ElfFile(const std::string& path, const Places& places = {});
  ElfFile(ElfFile&&) noexcept;
  ElfFile& operator=(ElfFile&&) noexcept;
  ~ElfFile();

  const std::string& problem() const { return problem_; }    // empty: usable
  const std::string& build_id() const { return build_id_; }  // lower-case hex; empty: none
  // It is not the file that ran: only addresses may be told.
  void set_nameless() { nameless_ = true; }

  // The address that the byte at `file_offset` is loaded to; nullopt: it is not loaded.
  std::optional<uint64_t> address_of(uint64_t file_offset) const;

  struct Place {
    std::string function;  // as in the symbol table; empty: unknown
    std::string file;
    int line = 0;
  };
  // The function that contains the address, last; before it those inlined there, innermost first.
  std::vector<Place> places_of(uint64_t address);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string problem_;
  std::string build_id_;
  bool nameless_ = false;
};

}  // namespace fragscope::symbolize
