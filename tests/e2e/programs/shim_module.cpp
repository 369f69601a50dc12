// A C++ module that brings a libstdc++ of its own: throws, catches and says which one it runs on.
#include <dlfcn.h>

#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <typeinfo>

extern "C" __attribute__((visibility("default"))) int module_run(const char** library) {
  Dl_info info{};
  dladdr(&typeid(std::runtime_error), &info);
  dladdr(reinterpret_cast<const void*>(&std::cout), &info);
  *library = info.dli_fname;
  try {
    throw std::runtime_error(std::string(100, 'x'));
  } catch (const std::exception& error) {
    return static_cast<int>(std::string(error.what()).size());
  }
}
