// Error texts of the library in a form that a model can have.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace fragscope::oracle {

// Without what a model cannot know: source positions, the list of processes, advice to report bugs.
inline std::string plain_text(std::string text) {
  static const std::string kBug = "please report a bug to PyTorch. ";
  const size_t assertion = text.find("INTERNAL ASSERT FAILED");
  if (assertion != text.npos) {
    const size_t tail = text.find(kBug);
    const bool has_tail = tail != text.npos && tail + kBug.size() < text.size();
    text = has_tail ? text.substr(tail + kBug.size()) : text.substr(0, assertion + 22);
  }
  for (const char* begin : {"Process ", "Including non-PyTorch memory, this process has "}) {
    const char* end = " memory in use. ";
    for (size_t at = text.find(begin); at != text.npos; at = text.find(begin, at)) {
      const size_t stop = text.find(end, at);
      if (stop == text.npos) break;
      text.erase(at, stop + std::string(end).size() - at);
    }
  }
  return text.substr(0, text.find('\n'));
}

// Runs one call; empty, or the error's text.
template <typename Call>
std::string guarded(Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return plain_text(error.msg());
  } catch (const std::exception& error) {
    return plain_text(error.what());
  }
  return {};
}

}  // namespace fragscope::oracle
