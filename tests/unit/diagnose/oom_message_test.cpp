#include "diagnose/oom_message.h"

#include "base/bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::diagnose;

namespace {

OomFacts facts_of(std::string_view text, std::string_view context = {}) {
  const MessageScan scan = scan_message(text, context);
  REQUIRE(scan.message);
  return *scan.message;
}

std::optional<uint64_t> bytes(const OomFacts& facts, Field field) {
  if (!facts[field]) return std::nullopt;
  return facts[field]->bytes;
}

constexpr uint64_t hundredths(uint64_t value, uint64_t unit) { return (value * unit + 50) / 100; }

void check_family(std::string_view text, Family family) {
  INFO(text);
  CHECK(facts_of(text).family == family);
}

}  // namespace

TEST_CASE("wording A: cached is what the allocator holds beside the live data") {
  const auto f = facts_of(
      "RuntimeError: CUDA out of memory. Tried to allocate 300.00 MiB (GPU 2; 7.50 GiB total "
      "capacity; 4.25 GiB already allocated; 120.50 MiB free; 2.75 GiB cached)");
  CHECK(f.family == Family::kNative);
  CHECK(bytes(f, Field::kTried) == 300 * kMiB);
  CHECK(bytes(f, Field::kTotal) == hundredths(750, kGiB));
  CHECK(bytes(f, Field::kAllocated) == hundredths(425, kGiB));
  CHECK(bytes(f, Field::kFree) == hundredths(12050, kMiB));
  CHECK(bytes(f, Field::kCached) == hundredths(275, kGiB));
  CHECK_FALSE(f[Field::kReserved]);
  CHECK(f.device_index == 2U);
  CHECK(wording_of(f).letter == "A");
}

TEST_CASE("wordings B, C and D differ in the limit and the advice") {
  const std::string head =
      "CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 15.75 GiB total capacity; 9.00 GiB "
      "already allocated; 33.00 MiB free; ";
  const std::string tail = "14.50 GiB reserved in total by PyTorch)";
  const std::string advice =
      " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
      "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF";
  CHECK(wording_of(facts_of(head + tail)).letter == "B");
  const auto c = facts_of(head + "15.00 GiB allowed; " + tail);
  CHECK(wording_of(c).letter == "C");
  CHECK(bytes(c, Field::kAllowed) == 15 * kGiB);
  CHECK(bytes(c, Field::kReserved) == hundredths(1450, kGiB));
  CHECK(wording_of(facts_of(head + tail + advice)).letter == "D");
}

namespace {

const std::string kHead21 = "Tried to allocate 512.00 MiB. GPU 1 has a total ";
const std::string kBody21 =
    " of 23.50 GiB of which 100.25 MiB is free. Process 4242 has 900.00 MiB memory in use. "
    "Including non-PyTorch memory, this process has 22.50 GiB memory in use. ";
const std::string kExpandable =
    " If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation "
    "for Memory Management  (https://";

}  // namespace

TEST_CASE("wordings E to H: processes, private pools, the limit") {
  const auto e = facts_of("CUDA out of memory. " + kHead21 + "capacty" + kBody21 +
                          "Of the allocated memory 19.00 GiB is allocated by PyTorch, and 2.25 GiB "
                          "is reserved by PyTorch but unallocated.");
  CHECK(wording_of(e).letter == "E");
  CHECK(bytes(e, Field::kProcessInUse) == hundredths(2250, kGiB));
  REQUIRE(e.listed_processes.size() == 1);
  CHECK(e.listed_processes[0].pid == 4242);
  CHECK(e.listed_processes[0].in_use.bytes == 900 * kMiB);
  CHECK(bytes(e, Field::kUnallocated) == hundredths(225, kGiB));
  CHECK(e.device_index == 1U);

  const auto h = facts_of(
      "torch.OutOfMemoryError: HIP out of memory. " + kHead21 + "capacity" + kBody21 +
      "20.50 GiB allowed; Of the allocated memory 17.00 GiB is allocated by PyTorch, with 260.00 "
      "MiB "
      "allocated in private pools (e.g., HIP Graphs), and 3.25 GiB is reserved by PyTorch but "
      "unallocated." +
      kExpandable + "pytorch.org/docs/stable/notes/cuda.html#environment-variables)");
  CHECK(wording_of(h).letter == "H");
  CHECK(h.has(Mark::kHip));
  CHECK(bytes(h, Field::kAllowed) == hundredths(2050, kGiB));
  CHECK(bytes(h, Field::kPrivatePools) == 260 * kMiB);
}

TEST_CASE("wordings F, G, H', H'' and M are told by their advice") {
  const auto message = [](const std::string& pools, const std::string& advice) {
    return "CUDA out of memory. " + kHead21 + "capacity" + kBody21 +
           "Of the allocated memory 19.00 GiB is allocated by PyTorch, " + pools +
           "and 2.25 GiB is reserved by PyTorch but unallocated." + advice;
  };
  const auto letter = [](const std::string& text) { return wording_of(facts_of(text)).letter; };
  CHECK(letter(message("", kExpandable + "pytorch.org/docs)")) == "F");
  CHECK(letter(message("with 2.00 MiB allocated in private pools (e.g., CUDA Graphs), ",
                       kExpandable + "pytorch.org/docs)")) == "G");
  CHECK(letter(message("", " If large try setting PYTORCH_ALLOC_CONF=expandable_segments:True")) ==
        "H'");
  CHECK(letter(message("", kExpandable + "docs.pytorch.org/docs/stable/notes/cuda.html#x)")) ==
        "H''");
  CHECK(letter(message("", " expandable_segments is enabled. If instead the process")) == "M");
  CHECK(letter(message("", "")).empty());
}

TEST_CASE("I and J: too large, and refused before asking the device") {
  const auto i = facts_of(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than "
      "1EB memory.");
  CHECK(i.family == Family::kTooLarge);
  CHECK_FALSE(i.has_figures());
  const auto j = facts_of(
      "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
      "per_process_memory_fraction limit. Requested size: 3.50 GiB");
  CHECK(j.family == Family::kRejected);
  CHECK(bytes(j, Field::kTried) == hundredths(350, kGiB));
}

TEST_CASE("L: the async backend, on one line or on six") {
  const std::string lines =
      "Allocation on device 3 would exceed allowed memory. (out of memory)\n"
      "Currently allocated     : 20.50 GiB\nRequested               : 700.00 MiB\n"
      "Device limit            : 31.75 GiB\nFree (according to CUDA): 12.50 MiB\n"
      "PyTorch limit (set by user-supplied memory fraction)\n                        : ";
  for (const std::string limit : {"17179869184.00 GiB", "25.40 GiB"}) {
    std::string one = lines + limit;
    for (char& c : one) c = c == '\n' ? ' ' : c;
    for (const std::string& text : {lines + limit, one}) {
      const auto f = facts_of(text);
      CHECK(f.family == Family::kAsync);
      CHECK(bytes(f, Field::kAllocated) == hundredths(2050, kGiB));
      CHECK(bytes(f, Field::kTried) == 700 * kMiB);
      CHECK(bytes(f, Field::kTotal) == hundredths(3175, kGiB));
      CHECK(bytes(f, Field::kFree) == hundredths(1250, kMiB));
      CHECK(f.device_index == 3U);
      CHECK(f.limit_is_sentinel == (limit.size() > 10));
      CHECK(f[Field::kLimit].has_value() != f.limit_is_sentinel);
      CHECK(bytes(f, Field::kAllowed) == bytes(f, Field::kLimit));
    }
  }
}

TEST_CASE("2^64 for this process's use is no figure") {
  const auto f = facts_of(
      "CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 6.00 GiB of "
      "which 0 bytes is free. Including non-PyTorch memory, this process has 17179869184.00 GiB "
      "memory in use. Of");
  CHECK(f.process_in_use_is_sentinel);
  CHECK_FALSE(f[Field::kProcessInUse]);
  CHECK(bytes(f, Field::kFree) == 0U);
}

TEST_CASE("retold figures count next to the request") {
  const auto f = facts_of(
      "98.00 MiB refused, 12.00 GiB total, 3.19 GiB allocated, 6.40 GiB free, "
      "9.60 GiB allowed");
  CHECK(bytes(f, Field::kTried) == 98 * kMiB);
  CHECK(bytes(f, Field::kTotal) == 12 * kGiB);
  CHECK(bytes(f, Field::kAllocated) == hundredths(319, kGiB));
  CHECK(bytes(f, Field::kFree) == hundredths(640, kGiB));
  CHECK(bytes(f, Field::kAllowed) == hundredths(960, kGiB));
}

TEST_CASE("other frameworks name their figures") {
  const auto cupy = facts_of(
      "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating "
      "2,147,483,648 bytes (allocated so far: 3,000,000,512 bytes, limit set "
      "to: 4,294,967,296 bytes).");
  CHECK(cupy.family == Family::kCupy);
  CHECK(bytes(cupy, Field::kTried) == 2 * kGiB);
  CHECK(bytes(cupy, Field::kReserved) == 3000000512U);
  CHECK(bytes(cupy, Field::kLimit) == 4 * kGiB);
  const auto old = facts_of("out of memory to allocate 536870912 bytes (total 6000000000 bytes)");
  CHECK(old.family == Family::kCupy);
  CHECK(bytes(old, Field::kReserved) == 6000000000U);

  const auto xla = facts_of(
      "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
      "allocate 805306368 bytes.");
  CHECK(xla.family == Family::kXla);
  CHECK(bytes(xla, Field::kTried) == 768 * kMiB);
  const auto request = facts_of(
      "RESOURCE_EXHAUSTED: Failed to allocate request for 1.25GiB "
      "(1342177281B) on device ordinal 2");
  CHECK(bytes(request, Field::kTried) == 1342177281U);
  CHECK(request.device_index == 2U);

  const auto tf = facts_of(
      "cuda_driver.cc:828] failed to allocate 48.00M (50331648 bytes) from "
      "device: CUDA_ERROR_OUT_OF_MEMORY: out of memory");
  CHECK(tf.family == Family::kTensorflow);
  CHECK(bytes(tf, Field::kTried) == 48 * kMiB);
  const auto ggml = facts_of(
      "alloc_buffer: allocating 77.50 MiB on device 0: cudaMalloc failed: "
      "out of memory");
  CHECK(ggml.family == Family::kCudaMalloc);
}

TEST_CASE("stated causes are told apart") {
  check_family("RuntimeError: CUDA error: out of memory", Family::kBareCuda);
  check_family("cudaErrorMemoryAllocation", Family::kBareCuda);
  check_family("CUDA error 2 at somewhere.cu:12: out of memory", Family::kBareCuda);
  check_family("RuntimeError: CUDA out of memory.", Family::kBareAllocator);
  check_family("cuda runtime error (2) : out of memory at x/THC/generic/THCStorage.cu:58",
               Family::kBareAllocator);
  check_family("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
               Family::kLibraryAlloc);
  check_family("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Family::kLibraryAlloc);
  check_family("CUDNN_STATUS_NOT_INITIALIZED", Family::kLibraryStatus);
  check_family("Unable to find a valid cuDNN algorithm to run convolution", Family::kLibraryStatus);
  check_family("NCCL error, unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
               Family::kNcclUnhandled);
  check_family("unhandled cuda error, NCCL version 2.1\nLast error:\nCuda failure 'out of memory'",
               Family::kNccl);
  check_family("NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
               Family::kHostPinned);
  check_family(
      "THCudaCheck FAIL file=x/THCCachingHostAllocator.cpp line=3 error=2\ncuda runtime "
      "error (2) : out of memory at x/THCCachingHostAllocator.cpp:3",
      Family::kHostPinned);
  check_family("could not allocate pinned host memory of size: 1048576 (", Family::kHostPinned);
  check_family("DataLoader worker (pid 9) is killed by signal: Bus error.", Family::kShm);
  check_family("unable to write to file </torch_9_9>: No space left on device (28)", Family::kShm);
  check_family("NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9)",
               Family::kShm);
  check_family(
      "unable to open shared memory object </torch_9_9> in read-write mode: Too many open "
      "files (24)",
      Family::kShmHandles);
  check_family("OSError: [Errno 28] No space left on device", Family::kNoSpace);
  check_family("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.",
               Family::kHostRam);
  check_family("numpy.core._exceptions.MemoryError: Unable to allocate 3.00 GiB for an array",
               Family::kHostRam);
  check_family("OSError: [Errno 12] Cannot allocate memory", Family::kHostRam);
  check_family("OSError: [WinError 1455] The paging file is too small for this operation",
               Family::kHostRam);
  check_family("[HAMi-core ERROR (pid:7 thread=1 allocator.c:53)]: Device 1 OOM 99 / 1234567890",
               Family::kHami);
  check_family("ValueError: No available memory for the cache blocks.", Family::kServerNoBlocks);
  check_family("CUDA out of memory occurred when warming up sampler with 9 dummy requests.",
               Family::kServerWarmUp);
  check_family(
      "NPU out of memory. Tried to allocate 20.00 MiB (NPU 0; 60.00 GiB total capacity; "
      "10.00 GiB already allocated)",
      Family::kNpu);
  check_family("Expandable segments are not compatible with memory pool", Family::kAllocatorAssert);
}

TEST_CASE("vLLM prints free and total in one pair of brackets") {
  const auto f = facts_of(
      "ValueError: Free memory on device (3.25/15.50 GiB) on startup is less "
      "than desired GPU memory utilization (0.9, 13.95 GiB).");
  CHECK(f.family == Family::kServerStartup);
  CHECK(bytes(f, Field::kFree) == hundredths(325, kGiB));
  CHECK(bytes(f, Field::kTotal) == hundredths(1550, kGiB));
}

TEST_CASE("texts without a message have none") {
  for (const char* text :
       {"", "\n", "training finished, 3.00 GiB free on disk", "he tried to allocate 2.00 GiB of it",
        "the room is full", "out of memory in a general sense", "memory: 12 GiB total; ok"}) {
    INFO(text);
    CHECK_FALSE(scan_message(text).message);
  }
}

TEST_CASE("the last message decides, an echo does not displace it") {
  const std::string first =
      "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 5.00 GiB "
      "already allocated; 1.00 GiB free; 6.50 GiB reserved in total by PyTorch)\n";
  const std::string second =
      "CUDA out of memory. Tried to allocate 4.00 GiB (GPU 1; 8.00 GiB total capacity; 6.00 GiB "
      "already allocated; 1.00 GiB free; 6.50 GiB reserved in total by PyTorch)\n";
  const std::string filler(2000, 'x');
  const auto last = scan_message(first + second);
  CHECK(last.messages == 2);
  CHECK(bytes(*last.message, Field::kTried) == 4 * kGiB);
  CHECK(last.message->device_index == 1U);

  const auto echo = scan_message(first + filler + "RuntimeError: CUDA error: out of memory");
  CHECK(echo.messages == 2);
  CHECK(bytes(*echo.message, Field::kTried) == 2 * kGiB);

  const auto shm =
      scan_message(first + "DataLoader worker (pid 1) is killed by signal: Bus error.");
  CHECK(shm.message->family == Family::kShm);

  const std::string third =
      "CUDA out of memory. Tried to allocate 4.00 GiB (GPU 1; 8.00 GiB total capacity; 6.25 GiB "
      "already allocated; 1.00 GiB free; 6.50 GiB reserved in total by PyTorch)\n";
  CHECK(scan_message(first + second + third).allocated_grew);
  CHECK_FALSE(scan_message(first + third + second).allocated_grew);
}

TEST_CASE("circumstances are read from the text around it or from the context") {
  CHECK(facts_of("set_per_process_memory_fraction(0.25)\nCUDA out of memory.").memory_fraction ==
        0.25);
  for (const char* words : {"per_process_memory_fraction:0.25", "--gpu_memory_fraction=0.25",
                            "a memory fraction of 0.25", "memory fraction 0.25"}) {
    INFO(words);
    CHECK(facts_of("CUDA out of memory.", words).memory_fraction == 0.25);
  }
  CHECK(facts_of("CUDA error: out of memory", "ulimit -l: 64").memlock_kib == 64U);
  CHECK(facts_of("CUDA error: out of memory", "pin_memory=True").has(Hint::kPinned));
  CHECK_FALSE(facts_of("CUDA error: out of memory", "pin_memory=False").has(Hint::kPinned));
  CHECK_FALSE(facts_of("CUDA error: out of memory", "this is not a memory leak").has(Hint::kLeak));
  CHECK(facts_of("is killed by signal: Bus error", "/dev/shm 32 GB").has(Hint::kRoomyShm));
  CHECK_FALSE(facts_of("is killed by signal: Bus error", "/dev/shm 64 MB").has(Hint::kRoomyShm));
  // The context opens no message of its own and fills no figures.
  const auto f = facts_of("CUDA out of memory. Tried to allocate 2.00 MiB",
                          "before: CUDA out of memory. Tried to allocate 9.00 GiB (GPU 0; 8.00 GiB "
                          "total capacity; 1.00 GiB already allocated)");
  CHECK(bytes(f, Field::kTried) == 2 * kMiB);
  CHECK_FALSE(f[Field::kTotal]);
}

TEST_CASE("far away words are no circumstances") {
  const std::string filler(9000, 'x');
  CHECK_FALSE(
      facts_of("pin_memory=True " + filler + " CUDA error: out of memory").has(Hint::kPinned));
}
