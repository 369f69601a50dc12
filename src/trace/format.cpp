#include "trace/format.h"

#include <cstring>
#include <string_view>

#include "base/byte_cursor.h"
#include "trace/checksum.h"
#include "trace/compression.h"

namespace fragscope::trace {
namespace {

constexpr size_t kMaxHeaderText = 1024;

std::span<const std::byte> bytes_of(const char (&magic)[8]) {
  return {reinterpret_cast<const std::byte*>(magic), sizeof magic};
}

Error damaged_header(const std::string& name, uint64_t offset) {
  return {ErrorCode::kDamaged, name + ": the header of the trace is damaged", offset};
}

}  // namespace

std::vector<std::byte> encode_file_header(const ProcessInfo& process) {
  ByteWriter payload;
  payload.varint(process.pid);
  payload.varint(process.start_ticks);
  payload.varint(process.realtime_ns);
  payload.varint(process.monotonic_ns);
  payload.text(std::string_view(process.program).substr(0, kMaxHeaderText));
  payload.text(std::string_view(process.shim_version).substr(0, kMaxHeaderText));
  ByteWriter header;
  header.bytes(bytes_of(kTraceMagic));
  header.fixed(kTraceVersion);
  header.fixed(static_cast<uint32_t>(payload.size()));
  header.bytes(payload.data());
  header.fixed(checksum(header.data()));
  return header.data();
}

Result<uint64_t> check_file_header(std::span<const std::byte> head, const std::string& name) {
  if (head.empty()) return Error{ErrorCode::kForeign, name + ": empty file, not a trace"};
  const size_t known = std::min(head.size(), sizeof kTraceMagic);
  if (std::memcmp(head.data(), kTraceMagic, known) != 0) {
    return Error{ErrorCode::kForeign, name + ": not a fragscope trace", 0};
  }
  if (head.size() < kHeaderFixedBytes) return damaged_header(name, head.size());
  ByteReader reader(head.subspan(sizeof kTraceMagic));
  const auto version = reader.fixed<uint32_t>();
  if (version > kTraceVersion) {
    return Error{ErrorCode::kNewerVersion,
                 name + ": trace version " + std::to_string(version) + ", this build reads up to " +
                     std::to_string(kTraceVersion) + "; use a newer fragscope",
                 sizeof kTraceMagic};
  }
  const auto payload = reader.fixed<uint32_t>();
  if (version == 0 || payload > kMaxHeaderPayload) return damaged_header(name, sizeof kTraceMagic);
  return kHeaderFixedBytes + payload + sizeof(uint64_t);
}

Result<ProcessInfo> decode_file_header(std::span<const std::byte> header, const std::string& name) {
  const auto covered = header.first(header.size() - sizeof(uint64_t));
  ByteReader stored(header.subspan(covered.size()));
  if (stored.fixed<uint64_t>() != checksum(covered)) return damaged_header(name, covered.size());
  ByteReader payload(covered.subspan(kHeaderFixedBytes));
  ProcessInfo process;
  const uint64_t pid = payload.varint();
  process.pid = static_cast<uint32_t>(pid);
  process.start_ticks = payload.varint();
  process.realtime_ns = payload.varint();
  process.monotonic_ns = payload.varint();
  process.program = payload.text(kMaxHeaderText);
  process.shim_version = payload.text(kMaxHeaderText);
  if (!payload.ok() || payload.remaining() != 0 || pid > UINT32_MAX) {
    return damaged_header(name, kHeaderFixedBytes);
  }
  return process;
}

std::vector<std::byte> encode_chunk(uint32_t tag, uint32_t records,
                                    std::span<const std::byte> raw) {
  if (raw.size() > kMaxRawBytes) return {};
  const std::vector<std::byte> stored = compress(raw);
  if (stored.empty()) return {};
  ByteWriter chunk;
  chunk.fixed(tag);
  chunk.fixed(static_cast<uint32_t>(stored.size()));
  chunk.fixed(static_cast<uint32_t>(raw.size()));
  chunk.fixed(records);
  chunk.fixed(checksum(stored));
  chunk.fixed(checksum(chunk.data()));
  chunk.bytes(stored);
  return chunk.data();
}

std::optional<ChunkHeader> decode_chunk_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kChunkHeaderBytes) return std::nullopt;
  ByteReader reader(bytes.first(kChunkHeaderBytes));
  ChunkHeader header;
  header.tag = reader.fixed<uint32_t>();
  header.stored_bytes = reader.fixed<uint32_t>();
  header.raw_bytes = reader.fixed<uint32_t>();
  header.records = reader.fixed<uint32_t>();
  header.checksum = reader.fixed<uint64_t>();
  const auto own = reader.fixed<uint64_t>();
  if (own != checksum(bytes.first(kChunkHeaderBytes - sizeof own))) return std::nullopt;
  const bool known = header.tag == kTableTag || header.tag == kEventTag || header.tag == kSealTag;
  if (!known || header.stored_bytes > kMaxStoredBytes || header.raw_bytes > kMaxRawBytes) {
    return std::nullopt;
  }
  if (header.tag == kEventTag && header.records > kMaxChunkEvents) return std::nullopt;
  return header;
}

std::vector<std::byte> encode_seal(const Seal& seal) {
  ByteWriter out;
  out.varint(static_cast<uint64_t>(seal.exit.kind));
  out.signed_varint(seal.exit.code);
  out.varint(seal.event_count);
  out.varint(seal.dropped_events);
  out.varint(seal.torn_records);
  out.varint(seal.properties.size());
  for (const auto& [key, value] : seal.properties) {
    out.text(key);
    out.text(value);
  }
  out.varint(seal.api_calls.size());
  for (const auto& [name, calls] : seal.api_calls) {
    out.text(name);
    out.varint(calls);
  }
  return out.data();
}

std::optional<Seal> decode_seal(std::span<const std::byte> raw) {
  ByteReader in(raw);
  Seal seal;
  const uint64_t kind = in.varint();
  const int64_t code = in.signed_varint();
  if (kind > static_cast<uint64_t>(ExitKind::vanished) || code != static_cast<int>(code)) {
    return std::nullopt;
  }
  seal.exit = {static_cast<ExitKind>(kind), static_cast<int>(code)};
  seal.event_count = in.varint();
  seal.dropped_events = in.varint();
  seal.torn_records = in.varint();
  for (uint64_t left = in.varint(); left != 0 && in.ok(); --left) {
    std::string key = in.text(kMaxText);
    seal.properties[std::move(key)] = in.text(kMaxText);
  }
  for (uint64_t left = in.varint(); left != 0 && in.ok(); --left) {
    std::string name = in.text(kMaxText);
    seal.api_calls[std::move(name)] = in.varint();
  }
  if (!in.ok() || in.remaining() != 0) return std::nullopt;
  return seal;
}

}  // namespace fragscope::trace
