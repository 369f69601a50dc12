// Small things that every hook needs.
#pragma once

#include <cerrno>

#define FRAGSCOPE_EXPORT __attribute__((visibility("default")))

namespace fragscope::shim {

// errno belongs to the host: what our code does between two real calls must not show in it.
class ErrnoKeeper {
 public:
  ErrnoKeeper() noexcept : saved_(errno) {}
  ~ErrnoKeeper() { errno = saved_; }
  ErrnoKeeper(const ErrnoKeeper&) = delete;
  ErrnoKeeper& operator=(const ErrnoKeeper&) = delete;

 private:
  int saved_;
};

}  // namespace fragscope::shim
