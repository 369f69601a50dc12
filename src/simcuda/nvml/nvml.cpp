// Stand-in for NVML: what monitors and PyTorch ask of a device, from the configuration and the
// shared ledger, so that another process sees the truth. Structures are those of the public NVML
// reference; functions without a meaning here exist and answer NOT_SUPPORTED, as on many real
// cards.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "simcuda/ledger.h"
#include "simcuda/sim_config.h"

using namespace fragscope::simcuda;

#define NVML_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum NvmlResult : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
};

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct PciInfoV2 {
  char bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id, reserved[4];
};
struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct Utilization {
  unsigned gpu, memory;
};

struct Machine {
  SimConfig config;
  Ledger* ledger = nullptr;
};
using Device = const int*;  // handles point into kOrdinals
constexpr int kOrdinals[fragscope::model::kMaxDevices] = {0, 1, 2, 3, 4, 5, 6, 7};

std::mutex g_lock;
std::atomic<Machine*> g_machine{nullptr};
int g_users = 0;

// Without a shared ledger the books are libcuda's own, if this process uses it.
Ledger* private_ledger() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  using Get = void* (*)();
  const auto get = reinterpret_cast<Get>(::dlsym(library, "fragscope_sim_ledger"));
  return get == nullptr ? nullptr : static_cast<Ledger*>(get());
}

NvmlResult load_machine(Machine& machine) {
  const char* text = ::secure_getenv(kConfigVariable);
  if (text == nullptr) return kDriverNotLoaded;
  auto config = parse_config(text);
  if (!config) return kDriverNotLoaded;
  machine.config = std::move(*config);
  const char* path = ::secure_getenv(kLedgerVariable);
  if (path == nullptr || *path == '\0') return kSuccess;
  auto ledger = Ledger::open(path, machine.config.devices, machine.config.total_bytes);
  if (!ledger) return kDriverNotLoaded;
  machine.ledger = ledger->release();
  return kSuccess;
}

NvmlResult initialise() noexcept {
  try {
    const std::lock_guard<std::mutex> guard(g_lock);
    if (g_machine.load() == nullptr) {
      auto machine = std::make_unique<Machine>();
      const NvmlResult result = load_machine(*machine);
      if (result != kSuccess) return result;
      g_machine.store(machine.release());
    }
    ++g_users;
    return kSuccess;
  } catch (...) {
    return kDriverNotLoaded;
  }
}

template <typename Body>
NvmlResult with_machine(Body body) noexcept {
  try {
    const std::lock_guard<std::mutex> guard(g_lock);
    if (g_users == 0) return kUninitialized;
    return body(*g_machine.load());
  } catch (...) {
    return kNotSupported;
  }
}

template <typename Body>
NvmlResult with_device(Device device, Body body) noexcept {
  return with_machine([&](Machine& machine) -> NvmlResult {
    const bool ours = device >= kOrdinals && device < kOrdinals + machine.config.devices;
    return ours ? body(machine, *device) : kInvalidArgument;
  });
}

Ledger* books(Machine& machine) {
  return machine.ledger != nullptr ? machine.ledger : private_ledger();
}

NvmlResult put_text(char* out, unsigned room, const char* text) {
  if (out == nullptr) return kInvalidArgument;
  if (std::strlen(text) + 1 > room) return kInsufficientSize;
  std::strcpy(out, text);
  return kSuccess;
}

template <typename T>
NvmlResult put(T* out, T value) {
  if (out == nullptr) return kInvalidArgument;
  *out = value;
  return kSuccess;
}

Memory memory_of(Machine& machine, int device) {
  Ledger* ledger = books(machine);
  const unsigned long long used = ledger == nullptr ? 0 : ledger->used(device);
  const unsigned long long total = machine.config.total_bytes;
  return {total, used < total ? total - used : 0, used};
}

void fill(ProcessInfoV1& out, const Ledger::Tenant& tenant) { out = {tenant.pid, tenant.bytes}; }
void fill(ProcessInfo& out, const Ledger::Tenant& tenant) {
  out = {tenant.pid, tenant.bytes, ~0U, ~0U};  // no MIG instances
}

template <typename Info>
NvmlResult processes(Device device, unsigned* count, Info* out) {
  return with_device(device, [&](Machine& machine, int ordinal) {
    if (count == nullptr) return kInvalidArgument;
    Ledger* ledger = books(machine);
    std::vector<Ledger::Tenant> found;
    if (ledger != nullptr) found = ledger->tenants(ordinal);
    const unsigned room = *count;
    *count = static_cast<unsigned>(found.size());
    if (found.size() > room) return kInsufficientSize;
    if (out == nullptr) return found.empty() ? kSuccess : kInvalidArgument;
    for (size_t i = 0; i < found.size(); ++i) fill(out[i], found[i]);
    return kSuccess;
  });
}

NvmlResult no_processes(Device device, unsigned* count) {
  return with_device(device, [&](Machine&, int) { return put(count, 0U); });
}

NvmlResult handle_of_bus(const char* text, Device* out) {
  return with_machine([&](Machine& machine) {
    unsigned domain = 0, bus = 0, slot = 0;
    if (text == nullptr || out == nullptr) return kInvalidArgument;
    if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) < 3) return kInvalidArgument;
    const int ordinal = static_cast<int>(bus) - kFirstPciBus;
    if (ordinal < 0 || ordinal >= machine.config.devices) return kNotFound;
    *out = &kOrdinals[ordinal];
    return kSuccess;
  });
}

constexpr const char* kDriverVersion = "580.65.06";  // a release of the CUDA 13 branch

}  // namespace

#define NVML_STUB(name) \
  NVML_EXPORT int name(void) { return kNotSupported; }
#include "simcuda/nvml/nvml_stubs.def"
#undef NVML_STUB

NVML_EXPORT int nvmlInit(void) { return initialise(); }
NVML_EXPORT int nvmlInit_v2(void) { return initialise(); }
NVML_EXPORT int nvmlInitWithFlags(unsigned) { return initialise(); }
NVML_EXPORT int nvmlShutdown(void) {
  const std::lock_guard<std::mutex> guard(g_lock);
  if (g_users == 0) return kUninitialized;
  --g_users;
  return kSuccess;
}

NVML_EXPORT const char* nvmlErrorString(int error) {
  switch (error) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    default:
      return "Unknown Error";
  }
}

NVML_EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned room) {
  return with_machine([&](Machine&) { return put_text(text, room, kDriverVersion); });
}
NVML_EXPORT int nvmlSystemGetNVMLVersion(char* text, unsigned room) {
  return with_machine([&](Machine&) { return put_text(text, room, "13.580.65.06"); });
}
NVML_EXPORT int nvmlSystemGetCudaDriverVersion(int* version) {
  return with_machine([&](Machine&) { return put(version, 13020); });
}
NVML_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}
NVML_EXPORT int nvmlSystemGetProcessName(unsigned pid, char* name, unsigned room) {
  return with_machine([&](Machine&) {
    char path[40];
    std::snprintf(path, sizeof path, "/proc/%u/exe", pid);
    char text[4096];
    const ssize_t length = ::readlink(path, text, sizeof text - 1);
    if (length < 0) return kNotFound;
    text[length] = '\0';
    return put_text(name, room, text);
  });
}

NVML_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  return with_machine(
      [&](Machine& machine) { return put(count, static_cast<unsigned>(machine.config.devices)); });
}
NVML_EXPORT int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }
NVML_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  return with_machine([&](Machine& machine) {
    if (index >= static_cast<unsigned>(machine.config.devices)) return kInvalidArgument;
    return put(out, static_cast<Device>(&kOrdinals[index]));
  });
}
NVML_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, Device* out) {
  return nvmlDeviceGetHandleByIndex_v2(index, out);
}
NVML_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* text, Device* out) {
  return handle_of_bus(text, out);
}
NVML_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* text, Device* out) {
  return handle_of_bus(text, out);
}
NVML_EXPORT int nvmlDeviceGetHandleByUUID(const char* text, Device* out) {
  return with_machine([&](Machine& machine) {
    if (text == nullptr || out == nullptr) return kInvalidArgument;
    for (int i = 0; i < machine.config.devices; ++i) {
      if (uuid_text(i) == text) return put(out, static_cast<Device>(&kOrdinals[i]));
    }
    return kNotFound;
  });
}

NVML_EXPORT int nvmlDeviceGetIndex(Device device, unsigned* index) {
  return with_device(
      device, [&](Machine&, int ordinal) { return put(index, static_cast<unsigned>(ordinal)); });
}
NVML_EXPORT int nvmlDeviceGetMinorNumber(Device device, unsigned* minor) {
  return nvmlDeviceGetIndex(device, minor);
}
NVML_EXPORT int nvmlDeviceGetName(Device device, char* name, unsigned room) {
  return with_device(device, [&](Machine& machine, int) {
    return put_text(name, room, machine.config.name.c_str());
  });
}
NVML_EXPORT int nvmlDeviceGetUUID(Device device, char* text, unsigned room) {
  return with_device(device, [&](Machine&, int ordinal) {
    return put_text(text, room, uuid_text(ordinal).c_str());
  });
}
NVML_EXPORT int nvmlDeviceGetPciInfo_v3(Device device, PciInfo* out) {
  return with_device(device, [&](Machine&, int ordinal) {
    if (out == nullptr) return kInvalidArgument;
    *out = {};
    out->bus = static_cast<unsigned>(kFirstPciBus + ordinal);
    out->pci_device_id = 0x20B010DE;
    out->pci_subsystem_id = 0x134F10DE;
    std::snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "0000:%02X:00.0", out->bus);
    std::snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return kSuccess;
  });
}
NVML_EXPORT int nvmlDeviceGetPciInfo_v2(Device device, PciInfoV2* out) {
  PciInfo full{};
  const int result = nvmlDeviceGetPciInfo_v3(device, &full);
  if (result != kSuccess || out == nullptr) return result != kSuccess ? result : kInvalidArgument;
  *out = {};
  std::memcpy(out->bus_id, full.bus_id_legacy, sizeof out->bus_id);
  out->bus = full.bus;
  out->pci_device_id = full.pci_device_id;
  out->pci_subsystem_id = full.pci_subsystem_id;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPciInfo(Device device, PciInfoV2* out) {
  return nvmlDeviceGetPciInfo_v2(device, out);
}
NVML_EXPORT int nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  return with_device(device, [&](Machine& machine, int) {
    if (major == nullptr || minor == nullptr) return kInvalidArgument;
    *major = machine.config.cc_major;
    *minor = machine.config.cc_minor;
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetMemoryInfo(Device device, Memory* out) {
  return with_device(
      device, [&](Machine& machine, int ordinal) { return put(out, memory_of(machine, ordinal)); });
}
NVML_EXPORT int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* out) {
  return with_device(device, [&](Machine& machine, int ordinal) {
    if (out == nullptr) return kInvalidArgument;
    const Memory memory = memory_of(machine, ordinal);
    *out = {out->version, memory.total, 0, memory.free, memory.used};
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count,
                                                     ProcessInfoV1* out) {
  return processes(device, count, out);
}
NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned* count,
                                                        ProcessInfo* out) {
  return processes(device, count, out);
}
NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count,
                                                        ProcessInfo* out) {
  return processes(device, count, out);
}
NVML_EXPORT int nvmlDeviceGetGraphicsRunningProcesses(Device device, unsigned* count, void*) {
  return no_processes(device, count);
}
NVML_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(Device device, unsigned* count, void*) {
  return no_processes(device, count);
}
NVML_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned* count, void*) {
  return no_processes(device, count);
}
NVML_EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device, unsigned* count, void*) {
  return no_processes(device, count);
}

// Kernels take no time: an idle, cool card.
NVML_EXPORT int nvmlDeviceGetUtilizationRates(Device device, Utilization* out) {
  return with_device(device, [&](Machine&, int) { return put(out, Utilization{0, 0}); });
}
NVML_EXPORT int nvmlDeviceGetTemperature(Device device, int, unsigned* degrees) {
  return with_device(device, [&](Machine&, int) { return put(degrees, 30U); });
}
NVML_EXPORT int nvmlDeviceGetPowerUsage(Device device, unsigned* milliwatts) {
  return with_device(device, [&](Machine&, int) { return put(milliwatts, 50000U); });
}
NVML_EXPORT int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* milliwatts) {
  return with_device(device, [&](Machine&, int) { return put(milliwatts, 400000U); });
}
NVML_EXPORT int nvmlDeviceGetPersistenceMode(Device device, int* mode) {
  return with_device(device, [&](Machine&, int) { return put(mode, 1); });
}
NVML_EXPORT int nvmlDeviceGetComputeMode(Device device, int* mode) {
  return with_device(device, [&](Machine&, int) { return put(mode, 0); });
}
NVML_EXPORT int nvmlDeviceGetP2PStatus(Device device, Device peer, int, int* status) {
  return with_device(
      device, [&](Machine&, int) { return peer == nullptr ? kInvalidArgument : put(status, 0); });
}

// No part of an NVLink fabric: state 0 is "not supported". The structure begins with its version,
// whose low 24 bits are its size. PyTorch 2.11 to 2.14 map no expandable segment if this call
// fails.
NVML_EXPORT int nvmlDeviceGetGpuFabricInfoV(Device device, unsigned* info) {
  return with_device(device, [&](Machine&, int) {
    if (info == nullptr) return kInvalidArgument;
    const size_t size = *info & 0xffffffU;
    if (size < sizeof *info || size > 256) return kInvalidArgument;
    std::memset(info + 1, 0, size - sizeof *info);
    return kSuccess;
  });
}
