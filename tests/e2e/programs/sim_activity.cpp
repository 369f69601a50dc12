// A client of CUPTI's activity records that reads them at the offsets of cupti_activity.h. What
// happened is told exactly once, in order, within the client's buffers.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sim_check.h"

namespace {

size_t g_buffer_bytes = 0;
size_t g_most_records = 0;
bool g_refuses = false;
constexpr size_t kGuard = 64;
constexpr uint8_t kPattern = 0xa5;

struct Record {
  uint32_t kind;
  std::vector<uint8_t> bytes;
  template <typename T>
  T at(size_t offset) const {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }
};
std::vector<Record> g_records;

int (*g_enable)(uint32_t);
int (*g_disable)(uint32_t);
int (*g_register)(void (*)(uint8_t**, size_t*, size_t*),
                  void (*)(void*, uint32_t, uint8_t*, size_t, size_t));
int (*g_flush)(uint32_t);
int (*g_next)(uint8_t*, size_t, void**);
int (*g_dropped)(void*, uint32_t, size_t*);
int (*g_push)(uint32_t, uint64_t);
int (*g_pop)(uint32_t, uint64_t*);

void give_buffer(uint8_t** buffer, size_t* bytes, size_t* most) {
  *most = g_most_records;
  *bytes = g_buffer_bytes;
  *buffer = nullptr;
  if (g_refuses) return;
  *buffer = static_cast<uint8_t*>(std::malloc(g_buffer_bytes + kGuard));
  std::memset(*buffer, kPattern, g_buffer_bytes + kGuard);
}

// Sizes of the records that appear here, from the headers of this major.
size_t bytes_of(uint32_t kind) {
  constexpr bool k13 = CUDART_VERSION >= 13000;
  switch (kind) {
    case 1:
      return k13 ? 96 : 88;
    case 2:
      return 88;
    case 10:
      return k13 ? 224 : 208;
    case 39:
      return 24;
    default:
      return 40;
  }
}

void take_buffer(void*, uint32_t, uint8_t* buffer, size_t bytes, size_t valid) {
  CHECK(bytes == g_buffer_bytes && valid <= bytes);
  for (size_t i = 0; i < kGuard; ++i) CHECK(buffer[bytes + i] == kPattern);
  CHECK(g_flush(0) != 0);  // not from here
  size_t records = 0;
  void* record = nullptr;
  while (g_next(buffer, valid, &record) == 0) {
    Record read;
    std::memcpy(&read.kind, record, sizeof read.kind);
    const auto* start = static_cast<const uint8_t*>(record);
    read.bytes.assign(start, start + bytes_of(read.kind));
    g_records.push_back(read);
    ++records;
  }
  CHECK(g_most_records == 0 || records <= g_most_records);
  std::free(buffer);
}

size_t count(uint32_t kind) {
  size_t found = 0;
  for (const Record& record : g_records) found += record.kind == kind ? 1 : 0;
  return found;
}
size_t dropped() {
  size_t records = 0;
  CHECK(g_dropped(nullptr, 0, &records) == 0);
  return records;
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  CHECK(function != nullptr);
}

const char kName[] = "some_kernel";
const void* g_stub = nullptr;
void launch(cudaStream_t stream) {
  OK(cudaLaunchKernel(g_stub, dim3(3, 2, 1), dim3(64, 1, 1), nullptr, 128, stream));
}

void every_record_once(cudaStream_t stream, void* device) {
  constexpr size_t kBytes = 1000;
  std::vector<char> host(kBytes);
  g_records.clear();
  CHECK(g_push(3, 77) == 0);
  launch(stream);
  uint64_t last = 0;
  CHECK(g_pop(3, &last) == 0 && last == 77);
  CHECK(g_pop(3, &last) != 0);
  OK(cudaMemcpyAsync(device, host.data(), kBytes, cudaMemcpyHostToDevice, stream));
  OK(cudaMemsetAsync(device, 7, 500, stream));
  CHECK(g_flush(1) == 0);
  CHECK(count(10) == 1 && count(1) == 1 && count(2) == 1 && count(39) == 1 && count(5) == 3);
  uint32_t linked = 0;
  uint64_t end = 0;
  std::set<uint32_t> calls;
  for (const Record& record : g_records) {
    if (record.kind == 39) {
      CHECK(record.at<uint32_t>(4) == 3 && record.at<uint64_t>(8) == 77);
      linked = record.at<uint32_t>(16);
    } else if (record.kind == 10) {
      CHECK(std::string(record.at<const char*>(104)) == kName);
      CHECK(record.at<int32_t>(52) == 3 && record.at<int32_t>(56) == 2);
      CHECK(record.at<int32_t>(64) == 64 && record.at<int32_t>(80) == 128);
      CHECK(record.at<uint32_t>(92) == linked && linked != 0);
      CHECK(record.at<uint64_t>(16) < record.at<uint64_t>(24));
      end = record.at<uint64_t>(24);
      calls.insert(linked);
    } else if (record.kind == 1 || record.kind == 2) {
      if (record.kind == 1) CHECK(record.at<uint8_t>(4) == 1 && record.at<uint8_t>(7) == 1);
      CHECK(record.at<uint64_t>(8) == (record.kind == 1 ? kBytes : 500));
      CHECK(record.at<uint64_t>(16) >= end);  // in the order of the stream
      end = record.at<uint64_t>(24);
      calls.insert(record.at<uint32_t>(44));
    } else {
      CHECK(calls.count(record.at<uint32_t>(32)) == 1 && record.at<uint32_t>(36) == 0);
    }
  }
  CHECK(calls.size() == 3 && dropped() == 0);
}

// Launches of several threads: records and dropped ones together are the launches.
size_t launch_many(size_t threads, size_t each) {
  g_records.clear();
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; ++i) {
    running.emplace_back([each] {
      cudaStream_t own = nullptr;
      OK(cudaStreamCreate(&own));
      for (size_t k = 0; k < each; ++k) launch(own);
    });
  }
  for (std::thread& thread : running) thread.join();
  CHECK(g_flush(0) == 0);
  return count(10);
}

void hostile_buffers() {
  for (const size_t bytes : {size_t{0}, size_t{7}, size_t{100}, bytes_of(10) - 1}) {
    g_buffer_bytes = bytes;
    CHECK(launch_many(1, 5) == 0);
    CHECK(dropped() == 5);
  }
  g_buffer_bytes = 1 << 16;
  g_most_records = 3;
  CHECK(launch_many(1, 10) == 10 && dropped() == 0);
  g_most_records = 0;
  g_refuses = true;
  CHECK(launch_many(1, 5) == 0 && dropped() == 5 && dropped() == 0);
  g_refuses = false;
}

}  // namespace

// argv[1]: the stand-in of CUPTI.
int main(int, char** arguments) {
  void* cupti = ::dlopen(arguments[1], RTLD_NOW);
  CHECK(cupti != nullptr);
  find(cupti, "cuptiActivityEnable", g_enable);
  find(cupti, "cuptiActivityDisable", g_disable);
  find(cupti, "cuptiActivityRegisterCallbacks", g_register);
  find(cupti, "cuptiActivityFlushAll", g_flush);
  find(cupti, "cuptiActivityGetNextRecord", g_next);
  find(cupti, "cuptiActivityGetNumDroppedRecords", g_dropped);
  find(cupti, "cuptiActivityPushExternalCorrelationId", g_push);
  find(cupti, "cuptiActivityPopExternalCorrelationId", g_pop);
  g_stub = register_kernel(kName);
  cudaStream_t stream = nullptr;
  void* device = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&device, 4096));

  g_buffer_bytes = 1 << 16;
  CHECK(g_register(nullptr, take_buffer) != 0);
  CHECK(g_register(give_buffer, take_buffer) == 0);
  CHECK(launch_many(1, 3) == 0 && g_records.empty());  // nobody asked
  for (const uint32_t kind : {1U, 2U, 5U, 10U, 39U}) CHECK(g_enable(kind) == 0);
  every_record_once(stream, device);
  CHECK(g_disable(5) == 0 && g_disable(39) == 0);
  CHECK(launch_many(4, 5000) == 20000 && dropped() == 0);
  hostile_buffers();
  for (const uint32_t kind : {1U, 2U, 10U}) CHECK(g_disable(kind) == 0);
  CHECK(launch_many(1, 3) == 0 && dropped() == 0);
  return g_failures;
}
