// The C library's own dlsym, dlvsym and dlerror, found in its symbol table (they are overridden
// here, so none can be used to find the others).
#pragma once

namespace fragscope::shim {

using DlsymFunction = void* (*)(void* handle, const char* name);
using DlvsymFunction = void* (*)(void* handle, const char* name, const char* version);
using DlerrorFunction = char* (*)();

// nullptr on a C library that has none (musl's lives in the loader itself).
DlsymFunction real_dlsym() noexcept;
DlvsymFunction real_dlvsym() noexcept;
DlerrorFunction real_dlerror() noexcept;

}  // namespace fragscope::shim
