#include "shim/device_facts.h"

#include <cstdio>

#include "shim/caps.h"
#include "shim/cuda_abi.h"
#include "shim/real_api.h"

namespace fragscope::shim {
namespace {

void write(Session& session, int32_t device, const char* field, std::string_view value) {
  char key[48];
  const int length = std::snprintf(key, sizeof key, "device.%d.%s", device, field);
  session.write_property(std::string_view(key, static_cast<size_t>(length)), value);
}

void write_bytes(Session& session, int32_t device, const char* field, uint64_t bytes) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%llu", static_cast<unsigned long long>(bytes));
  write(session, device, field, digits);
}

// What the program is told, which a cap may make less than the card has.
void write_total_bytes(Session& session, int32_t device) {
  const auto total_mem =
      reinterpret_cast<int (*)(size_t*, int)>(driver_function("cuDeviceTotalMem_v2"));
  size_t bytes = 0;
  if (total_mem == nullptr || total_mem(&bytes, device) != kSuccess) return;
  const uint64_t visible = caps::visible_bytes(bytes);
  write_bytes(session, device, "total_bytes", visible);
  if (visible != bytes) write_bytes(session, device, "card_bytes", bytes);
}

// "GPU-46726167-5363-6f70-652d-53696d2d3030": names the card whatever its ordinal is here.
void write_uuid(Session& session, int32_t device) {
  const auto get_uuid =
      reinterpret_cast<int (*)(void*, int)>(driver_function("cuDeviceGetUuid_v2"));
  unsigned char bytes[16] = {};
  if (get_uuid == nullptr || get_uuid(bytes, device) != kSuccess) return;
  char text[48];
  char* at = text + std::snprintf(text, sizeof text, "GPU");
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    at += std::snprintf(at, static_cast<size_t>(text + sizeof text - at), "%s%02x", dash ? "-" : "",
                        bytes[i]);
  }
  write(session, device, "uuid", text);
}

}  // namespace

void describe_device(Session& session, int32_t device) noexcept {
  if (device < 0 || device >= 64) return;
  const uint64_t bit = uint64_t{1} << device;
  if ((session.described_devices.load(std::memory_order_relaxed) & bit) != 0) return;
  if ((session.described_devices.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  const auto get_name =
      reinterpret_cast<int (*)(char*, int, int)>(driver_function("cuDeviceGetName"));
  char name[256] = {};
  if (get_name != nullptr && get_name(name, sizeof name - 1, device) == kSuccess) {
    write(session, device, "name", name);
  }
  write_total_bytes(session, device);
  write_uuid(session, device);
  write(session, device, "simulated",
        driver_function("fragscope_sim_version") != nullptr ? "1" : "0");
}

}  // namespace fragscope::shim
