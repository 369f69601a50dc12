// The C library's own dlsym and dlvsym, found in its symbol table (both are overridden here, so
// neither can be used to find the other).
#pragma once

namespace fragscope::shim {

using DlsymFunction = void* (*)(void* handle, const char* name);
using DlvsymFunction = void* (*)(void* handle, const char* name, const char* version);

// nullptr on a C library that has none (musl's lives in the loader itself).
DlsymFunction real_dlsym() noexcept;
DlvsymFunction real_dlvsym() noexcept;

}  // namespace fragscope::shim
