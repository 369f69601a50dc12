// How much of a limit is in use: by this process alone, or by all processes of a run together.
//
// Purses are numbered: 0 … kMaxDevices - 1 devices, kPinnedPurse pinned host memory. What counts is
// bytes of calls that succeeded or are under way.
//
// Threads: one at a time per object (its holder locks); a shared account is shared between
// processes under a lock of its own that survives the death of whoever holds it.
// Errors: SharedAccount::open.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace fragscope::enforce {

inline constexpr int kMaxDevices = 64;
inline constexpr int kPinnedPurse = kMaxDevices;
inline constexpr int kPurses = kMaxDevices + 1;

using DeviceUuid = std::array<unsigned char, 16>;

class Account {
 public:
  virtual ~Account() = default;
  // Takes `bytes` if no more than `limit` are in use then.
  virtual bool take(int purse, uint64_t bytes, uint64_t limit) = 0;
  // Takes them in any case: they are in use already.
  virtual void add(int purse, uint64_t bytes) = 0;
  virtual void give_back(int purse, uint64_t bytes) = 0;
  // By everybody who shares the limit.
  virtual uint64_t used(int purse) = 0;
  // Which card a purse is; needed before its first use where processes number devices differently.
  virtual void name_device(int purse, const DeviceUuid& uuid) = 0;
};

class LocalAccount final : public Account {
 public:
  bool take(int purse, uint64_t bytes, uint64_t limit) override;
  void add(int purse, uint64_t bytes) override { used_[at(purse)] += bytes; }
  void give_back(int purse, uint64_t bytes) override;
  uint64_t used(int purse) override { return used_[at(purse)]; }
  void name_device(int, const DeviceUuid&) override {}

 private:
  static size_t at(int purse) { return static_cast<size_t>(purse); }
  std::array<uint64_t, kPurses> used_{};
};

// A file of a few hundred KiB that all processes of a run map. Each has a line of its own, so what
// a killed process held is given back by whoever needs it next: lines of processes that are gone
// (pid and start time; zombies are gone) are cleared when a request does not fit, and when lines
// run out. A program that replaces itself by exec keeps its line until its new image asks for
// memory. Processes that cannot see each other (other pid namespaces) must not share an account.
class SharedAccount final : public Account {
 public:
  // Maps the account, made first if there is none, and takes a line for the calling process.
  // Errors: kPermission, kNoSpace, kForeign, kNewerVersion; kNoSpace when no line is free.
  static Result<std::unique_ptr<SharedAccount>> open(const std::string& path);
  ~SharedAccount() override;  // gives the line back

  bool take(int purse, uint64_t bytes, uint64_t limit) override;
  void add(int purse, uint64_t bytes) override;
  void give_back(int purse, uint64_t bytes) override;
  uint64_t used(int purse) override;
  void name_device(int purse, const DeviceUuid& uuid) override;

  // In the child of a fork the parent's line is not ours to give back: the object is dropped.
  void forget() { line_ = nullptr; }

  struct Page;
  struct Line;

 private:
  class Locked;
  SharedAccount(Page* page, Line* line);
  int row(int purse) const;
  static uint64_t sum(const Page& page, int row);

  Page* page_;
  Line* line_;
  std::array<int, kPurses> rows_;  // of purses; -1 not named yet
};

// Makes the file of an account, so that members find it whole. Errors: kPermission, kNoSpace.
Status create_account(const std::string& path);

}  // namespace fragscope::enforce
