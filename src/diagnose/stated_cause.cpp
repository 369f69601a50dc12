#include "diagnose/stated_cause.h"

#include <algorithm>
#include <iterator>

#include "diagnose/device_arithmetic.h"

namespace fragscope::diagnose {
namespace {

using V = Verdict;

struct Stated {
  Family family;
  Verdict verdict;
  Confidence confidence;
  std::initializer_list<Verdict> alternatives;
  const char* why;
};

const Stated kCauses[] = {
    {Family::kBareCuda,
     V::kUnknown,
     Confidence::kLow,
     {V::kOtherProcess, V::kNonPytorchMemory, V::kHostPinned, V::kTrueExhaustion},
     "A call of the GPU's runtime or driver ran out of memory, but not one of PyTorch's caching "
     "allocator, which would have printed its figures. Creating a context on a full card, a "
     "library's own memory and "
     "page-locking host memory all end with this text."},
    {Family::kNoSpace,
     V::kUnknown,
     Confidence::kLow,
     {V::kShm},
     "A file system is full. Whether it is /dev/shm or a disk is not in the text."},
    {Family::kBareAllocator,
     V::kUnknown,
     Confidence::kLow,
     {V::kTrueExhaustion, V::kFragmentation, V::kNonPytorchMemory},
     "The allocator's figures are missing from the text; without them exhaustion and "
     "fragmentation look alike."},
    {Family::kLibraryStatus,
     V::kTrueExhaustion,
     Confidence::kLow,
     {V::kNonPytorchMemory, V::kOtherProcess, V::kUnknown},
     "A math library could not set itself up or found no algorithm. With a full card this is "
     "how its failed allocation looks; the same status also follows an earlier CUDA fault or a "
     "wrong installation, which the text cannot exclude."},
    {Family::kLibraryAlloc,
     V::kTrueExhaustion,
     Confidence::kLow,
     {V::kNonPytorchMemory, V::kOtherProcess, V::kUnknown},
     "A math library asked the driver for memory of its own (handle or workspace, outside "
     "PyTorch's allocator) and got none: the card is full, often of PyTorch's own cache."},
    {Family::kNcclUnhandled,
     V::kUnknown,
     Confidence::kLow,
     {V::kNonPytorchMemory, V::kTrueExhaustion, V::kOtherProcess},
     "NCCL hides which CUDA error it met; \"out of memory\" is only one of them. "
     "NCCL_DEBUG=WARN prints it."},
    {Family::kNccl,
     V::kNonPytorchMemory,
     Confidence::kLow,
     {V::kTrueExhaustion, V::kOtherProcess},
     "NCCL asked the driver for its own buffers, outside PyTorch's allocator, and the card had "
     "no room left: PyTorch's cache and NCCL compete, or two ranks share a card."},
    {Family::kCudaMalloc,
     V::kTrueExhaustion,
     Confidence::kLow,
     {V::kOtherProcess, V::kNonPytorchMemory},
     "The driver's allocation call (cudaMalloc or its like) failed in a program without PyTorch's "
     "caching allocator: the card had less free than was asked for. Who holds the rest is not in "
     "the text."},
    {Family::kPoolLimit,
     V::kMemoryFractionCap,
     Confidence::kLow,
     {V::kTrueExhaustion, V::kFragmentation},
     "A memory pool refused by its own limit (RMM: maximum_pool_size, by default what was free on "
     "the card at start; ONNX Runtime: gpu_mem_limit; Triton server: the CUDA memory pool), not "
     "the "
     "driver."},
    {Family::kPaddle,
     V::kTrueExhaustion,
     Confidence::kLow,
     {V::kOtherProcess, V::kNonPytorchMemory},
     "PaddlePaddle asked the driver for more than the card had free. \"Allocated\" is here what "
     "all programs on the card have in use."},
    {Family::kJulia,
     V::kUnknown,
     Confidence::kLow,
     {V::kTrueExhaustion, V::kFragmentation, V::kOtherProcess},
     "CUDA.jl collected garbage and emptied its pool before it gave up; the figures that would "
     "tell the cause are missing from the text."},
    {Family::kKilled,
     V::kUnknown,
     Confidence::kLow,
     {V::kLeakSuspected, V::kShm},
     "The process was ended by SIGKILL (exit code 137 or -9). Mostly that is the kernel or a "
     "container limit because host memory ran out; a scheduler or a person can have sent it too. "
     "The GPU running full does not end a process like this."},
    {Family::kWorkerGone,
     V::kUnknown,
     Confidence::kLow,
     {V::kShm},
     "A DataLoader worker ended. Why is in the worker's own message further up: a bus error is a "
     "full /dev/shm, \"Killed\" is host memory, a traceback is neither."},
    {Family::kBadAlloc,
     V::kUnknown,
     Confidence::kLow,
     {V::kLeakSuspected, V::kTrueExhaustion},
     "A C++ allocation failed, mostly of ordinary host memory (or of a size computed from "
     "garbage); which is not in the text."},
    {Family::kKernel,
     V::kUnknown,
     Confidence::kMedium,
     {},
     "One kernel wants more shared memory or registers of a multiprocessor than there are. That is "
     "on-chip memory: neither the card's memory nor /dev/shm ran out."},
    {Family::kBusError,
     V::kShm,
     Confidence::kLow,
     {V::kUnknown},
     "A bus error: a mapped file had no page to give. With DataLoader workers it is mostly a full "
     "/dev/shm; a truncated or unreadable mapped file does the same."},
    {Family::kTensorflow,
     V::kTrueExhaustion,
     Confidence::kLow,
     {V::kMemoryFractionCap, V::kOtherProcess, V::kFragmentation},
     "TensorFlow's pool could neither serve the request nor grow. The pool's limit, other "
     "processes and its own gaps are not in the text."},
    {Family::kXla,
     V::kTrueExhaustion,
     Confidence::kLow,
     {V::kMemoryFractionCap, V::kFragmentation, V::kOtherProcess},
     "XLA's pool could not serve the request. By default it takes 75 % of the card at start, so "
     "the limit may be that share and not the card."},
    {Family::kCupy,
     V::kTrueExhaustion,
     Confidence::kLow,
     {V::kLeakSuspected, V::kFragmentation, V::kOtherProcess},
     "CuPy's pool asked the driver for more and got none; how much of the pool is idle is not "
     "printed."},
    {Family::kServerNoBlocks,
     V::kMemoryFractionCap,
     Confidence::kLow,
     {V::kTrueExhaustion},
     "The server plans with a share of the card (vLLM: gpu_memory_utilization, SGLang: "
     "mem_fraction_static). Weights and peak activations take it, and too little is left for the "
     "KV cache."},
    {Family::kServerStartup,
     V::kOtherProcess,
     Confidence::kMedium,
     {V::kMemoryFractionCap, V::kNonPytorchMemory},
     "When the server (vLLM, SGLang) started, less was free than it plans with (vLLM: "
     "gpu_memory_utilization x total): something else already holds memory on this card."},
    {Family::kServerWarmUp,
     V::kTrueExhaustion,
     Confidence::kLow,
     {V::kMemoryFractionCap, V::kFragmentation},
     "The server had given its budget to weights and KV cache; the warm-up batch needed more than "
     "was left beside it."},
    {Family::kHami,
     V::kMemoryFractionCap,
     Confidence::kMedium,
     {},
     "A vGPU layer (HAMi-core) refused, not the driver: it enforces a limit per container by "
     "its own books."},
    {Family::kMps,
     V::kTrueExhaustion,
     Confidence::kLow,
     {V::kMemoryFractionCap},
     "PyTorch's MPS backend refused: the limit is a multiple of what Metal recommends "
     "(PYTORCH_MPS_HIGH_WATERMARK_RATIO), not a card."},
    {Family::kNpu,
     V::kUnknown,
     Confidence::kLow,
     {V::kTrueExhaustion, V::kFragmentation},
     "This is an Ascend NPU with an allocator of its own; the rules for CUDA do not apply to "
     "its figures."},
    {Family::kAllocatorAssert,
     V::kUnknown,
     Confidence::kMedium,
     {},
     "This is a check of the allocator's settings or of its inner state, not a lack of memory."},
    {Family::kHostRam,
     V::kUnknown,
     Confidence::kMedium,
     {V::kLeakSuspected, V::kShm},
     "Ordinary host memory ran out (CPU allocator or the kernel's OOM killer); the GPU is not "
     "involved."},
    {Family::kShm,
     V::kShm,
     Confidence::kMedium,
     {},
     "DataLoader workers hand batches over through shared memory (/dev/shm). A write into a "
     "full /dev/shm ends as a bus error or as \"No space left on device\"; containers give it "
     "64 MB by default."},
    {Family::kShmHandles,
     V::kUnknown,
     Confidence::kLow,
     {V::kShm},
     "Shared memory handles ran out: each shared tensor keeps a file descriptor open. That is "
     "a limit of descriptors (ulimit -n), not of bytes."},
    {Family::kHostPinned,
     V::kHostPinned,
     Confidence::kMedium,
     {},
     "Locking host pages failed. That is a limit of the host (ulimit -l, WSL, Windows, RAM), "
     "not of the card."},
    {Family::kRejected,
     V::kMemoryFractionCap,
     Confidence::kHigh,
     {},
     "PyTorch refused before asking the device, because per_process_memory_fraction would have "
     "been exceeded."},
    {Family::kTooLarge,
     V::kTrueExhaustion,
     Confidence::kMedium,
     {V::kUnknown},
     "No card holds a request of 1 EB or more, whatever else is printed. Mostly nothing so large "
     "was "
     "meant: the size was computed from garbage (a negative or overflowed shape, a damaged or "
     "half-received object)."},
};

void restate(Explanation& out, Verdict verdict, Confidence confidence, const char* why) {
  if (out.verdict != verdict) {
    auto& others = out.alternatives;
    others.erase(std::remove(others.begin(), others.end(), verdict), others.end());
    const bool listed = std::find(others.begin(), others.end(), out.verdict) != others.end();
    if (!listed && out.verdict != V::kUnknown) {
      others.insert(others.begin(), out.verdict);
    }
  }
  out.verdict = verdict;
  out.confidence = confidence;
  out.why.emplace_back(why);
}

bool is_bare(Family family) { return family == Family::kBareCuda || family == Family::kCudaMalloc; }

// What the surrounding text says decides where the message itself says nothing.
void apply_hints(const OomFacts& f, Explanation& out) {
  const bool silent = out.confidence == Confidence::kLow;
  if (f.has(Hint::kPinned) && (is_bare(f.family) || f.family == Family::kNcclUnhandled)) {
    restate(out, V::kHostPinned, Confidence::kMedium,
            "The text around it names page-locking of host memory (pin_memory, cudaHostAlloc, "
            "cudaHostRegister, ulimit -l): the call that failed locks host pages and takes no "
            "device memory.");
  } else if (f.has(Hint::kOtherProcess) && silent && f.family != Family::kHostRam &&
             f.family != Family::kCupy && f.family != Family::kPaddle &&
             f.family > Family::kKernel && f.family < Family::kAllocatorAssert) {
    restate(out, V::kOtherProcess, Confidence::kLow,
            "The text around it speaks of several processes on the card.");
  } else if (f.has(Hint::kContextCreation) && f.family == Family::kBareCuda) {
    restate(out, V::kOtherProcess, Confidence::kLow,
            "The failing call creates a CUDA context, before this process has anything else on the "
            "card: something else fills it.");
  } else if (f.has(Hint::kSmallerBatch) && is_bare(f.family)) {
    restate(out, V::kTrueExhaustion, Confidence::kLow,
            "A smaller batch is said to help, so it is the amount of data.");
  }
  if (f.family == Family::kTooLarge && f.has(Hint::kHalfReceived)) {
    restate(
        out, V::kUnknown, Confidence::kMedium,
        "The text around it names an object that came over the network or from a file: its size "
        "is what was damaged, so this is no lack of memory.");
  }
  if (f.family == Family::kNoSpace && f.has(Hint::kShmNamed)) {
    restate(out, V::kShm, Confidence::kMedium,
            "The text around it names shared memory, which lies in /dev/shm.");
  }
  const bool bus = f.family == Family::kShm || f.family == Family::kBusError;
  if (bus && (f.has(Hint::kRoomyShm) || f.has(Hint::kLmdb))) {
    restate(out, V::kUnknown, Confidence::kLow,
            "But /dev/shm is said to be large, or the data are memory-mapped files (LMDB), or no "
            "worker was used: a bus error also follows a truncated or unreadable mapped file.");
  }
}

// TensorFlow's and XLA's statistics, CuPy's limit: room within the pool's limit?
void weigh_pool(const OomFacts& f, Explanation& out) {
  const auto& limit = f[Field::kLimit];
  const auto& tried = f[Field::kTried];
  const auto& used = f[Field::kAllocated] ? f[Field::kAllocated] : f[Field::kReserved];
  if (!limit || !tried || !used || f.family == Family::kHami) return;
  const auto room = static_cast<int64_t>(limit->bytes) - static_cast<int64_t>(used->bytes);
  const auto wanted = static_cast<int64_t>(tried->bytes);
  out.why.push_back("Limit of the pool " + size_text(*limit) + " - in use " + size_text(*used) +
                    " = " + size_text(room) + ", request " + size_text(*tried) + ".");
  if (f.family == Family::kCupy || f.family == Family::kPoolLimit) {
    if (room < wanted) {
      restate(out, V::kMemoryFractionCap, Confidence::kMedium, "The pool's own limit refuses.");
    }
  } else if (room >= wanted) {
    restate(out, V::kFragmentation, Confidence::kLow, "The pool has room, but not in one piece.");
  }
}

// A size and what was free, printed without PyTorch's other figures.
void weigh_free(const OomFacts& f, Explanation& out) {
  const auto& tried = f[Field::kTried];
  const auto& free = f[Field::kFree];
  const auto& total = f[Field::kTotal];
  const bool device = f.family == Family::kPaddle || f.family == Family::kXla ||
                      f.family == Family::kTensorflow || f.family == Family::kCudaMalloc;
  if (f.family == Family::kPoolLimit && tried && free && free->bytes < tried->bytes) {
    restate(out, V::kMemoryFractionCap, Confidence::kMedium,
            "The pool says how little its limit leaves.");
    return;
  }
  if (!device || !tried) return;
  uint64_t card = total ? total->bytes : 0;
  // What is in use and what is free make up the card.
  if (f.family == Family::kPaddle && free && f[Field::kAllocated]) {
    card = free->bytes + f[Field::kAllocated]->bytes;
  }
  if (card > 0 && tried->bytes > card) {
    out.why.push_back(size_text(*tried) + " are more than the whole card (" +
                      size_text(static_cast<int64_t>(card)) + ").");
    restate(out, V::kTrueExhaustion, Confidence::kHigh, "No setting can make it fit.");
    out.alternatives.clear();
  } else if (free && free->bytes < tried->bytes) {
    out.why.push_back("Free " + size_text(*free) + ", request " + size_text(*tried) + ".");
    if (out.verdict == V::kTrueExhaustion) out.confidence = Confidence::kMedium;
  }
}

}  // namespace

void judge_stated(const OomFacts& facts, Explanation& out) {
  const auto cause =
      std::find_if(std::begin(kCauses), std::end(kCauses),
                   [&facts](const Stated& stated) { return stated.family == facts.family; });
  if (cause == std::end(kCauses)) return;
  out.verdict = cause->verdict;
  out.confidence = cause->confidence;
  out.alternatives = cause->alternatives;
  out.why.emplace_back(cause->why);
  if (facts.process_in_use_is_sentinel || facts.limit_is_sentinel) {
    out.why.emplace_back("One printed figure is an unset or underflowed 64-bit counter.");
  }
  apply_hints(facts, out);
  weigh_pool(facts, out);
  weigh_free(facts, out);
  const bool full_budget =
      facts.family == Family::kServerNoBlocks && facts.gpu_memory_utilization.value_or(0) >= 0.9;
  if (full_budget) {
    restate(out, V::kTrueExhaustion, Confidence::kLow,
            "gpu_memory_utilization is 0.9 or more already: the card is too small for this model "
            "and context length.");
  }
}

}  // namespace fragscope::diagnose
