// Bytes around the payloads of a trace file (FORMAT.md): file header, chunk headers, end mark, and
// the limits that a reader checks before it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/trace_data.h"

namespace fragscope::trace {

inline constexpr char kTraceMagic[8] = {'F', 'S', 'T', 'R', 'C', '\r', '\n', '\0'};
inline constexpr char kEndMagic[8] = {'F', 'S', 'T', 'E', 'N', 'D', '\r', '\n'};
inline constexpr uint32_t kTraceVersion = 2;
inline constexpr uint64_t kHeaderFixedBytes = 16;
inline constexpr uint64_t kMaxHeaderPayload = 65536;
inline constexpr uint64_t kChunkHeaderBytes = 32;
inline constexpr uint64_t kEndMarkBytes = 16;
inline constexpr uint64_t kMaxRawBytes = 16 << 20;
inline constexpr uint64_t kMaxStoredBytes = 17 << 20;
inline constexpr uint32_t kMaxChunkEvents = 65536;
inline constexpr uint64_t kMaxStackFrames = 4096;
inline constexpr uint64_t kMaxChunkFrames = 1 << 21;
inline constexpr uint64_t kMaxText = 1 << 20;

constexpr uint32_t chunk_tag(const char (&name)[5]) {
  return static_cast<uint32_t>(name[0]) | static_cast<uint32_t>(name[1]) << 8 |
         static_cast<uint32_t>(name[2]) << 16 | static_cast<uint32_t>(name[3]) << 24;
}
inline constexpr uint32_t kTableTag = chunk_tag("TABL");
inline constexpr uint32_t kEventTag = chunk_tag("EVNT");
inline constexpr uint32_t kSealTag = chunk_tag("SEAL");

struct ChunkHeader {
  uint32_t tag = 0;
  uint32_t stored_bytes = 0;
  uint32_t raw_bytes = 0;
  uint32_t records = 0;
  uint64_t checksum = 0;  // of the stored bytes
};

// The header with its own checksum. Raw texts of `process` longer than 1024 bytes are cut.
std::vector<std::byte> encode_file_header(const ProcessInfo& process);

// `head`: the first kHeaderFixedBytes of the file, fewer when it is shorter. Returns the bytes of
// the whole header. Errors: kForeign, kNewerVersion, kDamaged; `name` is for their text.
Result<uint64_t> check_file_header(std::span<const std::byte> head, const std::string& name);
Result<ProcessInfo> decode_file_header(std::span<const std::byte> header, const std::string& name);

// Header and compressed payload, ready to write. Empty when the payload exceeds kMaxRawBytes.
std::vector<std::byte> encode_chunk(uint32_t tag, uint32_t records, std::span<const std::byte> raw);

// Nothing when the header is damaged, its tag unknown or a length beyond its limit.
std::optional<ChunkHeader> decode_chunk_header(std::span<const std::byte> bytes);

struct Seal {
  ProcessExit exit;
  uint64_t event_count = 0;
  uint64_t dropped_events = 0;
  uint64_t torn_records = 0;
  std::map<std::string, std::string> properties;
  std::map<std::string, uint64_t> api_calls;
};
std::vector<std::byte> encode_seal(const Seal& seal);
std::optional<Seal> decode_seal(std::span<const std::byte> raw);

}  // namespace fragscope::trace
