#include "diagnose/remedies.h"

namespace fragscope::diagnose {
namespace {

using Actions = std::vector<std::string>;

// Private pools of this size are worth a word.
constexpr uint64_t kLargePools = uint64_t{256} << 20;

constexpr const char* kSetExpandable =
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts: segments that "
    "grow and shrink by pages leave no gaps between them, which usually cures this.";

constexpr const char* kRuleOutFault =
    "Rule out an earlier fault: run once with CUDA_LAUNCH_BLOCKING=1, and check labels and "
    "indices.";

bool is_old(const OomFacts& f) { return f.has(Mark::kLegacyLayout) || f[Field::kCached]; }

void fragmentation(const OomFacts& f, Actions& out) {
  if (f.family == Family::kXla || f.family == Family::kTensorflow) {
    out.emplace_back(
        "JAX: XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async; TensorFlow: "
        "TF_GPU_ALLOCATOR=cuda_malloc_async. Both let the driver join free memory.");
    return;
  }
  if (f.family == Family::kJulia) {
    out.emplace_back(
        "CUDA.jl: CUDA.reclaim() after GC.gc(true) returns idle memory; unsafe_free! on large "
        "arrays, "
        "or JULIA_CUDA_MEMORY_POOL=none, keeps the pool from holding pieces.");
    return;
  }
  if (f.family == Family::kAsync) {
    out.emplace_back(
        "Compare with the native allocator (no backend:cudaMallocAsync) and "
        "expandable_segments:True: the async backend ignores PyTorch's settings "
        "against fragmentation.");
  } else if (f.has(Mark::kExpandableOn)) {
    out.emplace_back(
        "expandable_segments is on already: look at pinned pieces in private pools "
        "(CUDA graphs), other streams, and the reserve the message names.");
  } else if (is_old(f)) {
    out.emplace_back(
        "Update to torch 2.1 or later and set PYTORCH_CUDA_ALLOC_CONF="
        "expandable_segments:True (Linux): it usually cures this. Before 1.10 there "
        "is no setting against it at all.");
  } else {
    out.emplace_back(kSetExpandable);
  }
  if (f.has(Hint::kWindows)) {
    out.emplace_back(
        "On Windows expandable segments are not available: same shapes in every step "
        "(fixed crop, padding, bucketed lengths) help there.");
  }
  out.emplace_back(
      "Keep shapes from changing, or run the largest batch first: the cache then "
      "holds pieces that every later step can use.");
  out.emplace_back(
      "max_split_size_mb often does not help: it stops large cached pieces from being "
      "split, at the price of more cudaMalloc calls. Try it (128 to 512) only when "
      "expandable segments are not possible, and measure.");
  out.emplace_back(
      "torch.cuda.empty_cache() does not help here: PyTorch had already returned what "
      "it could before it gave up.");
  if (f[Field::kPrivatePools] && f[Field::kPrivatePools]->bytes >= kLargePools) {
    for (std::string& action : private_pool_remedies()) out.push_back(std::move(action));
  }
  out.emplace_back("Record the run (fragscope run) to see which blocks pin the gaps.");
}

void garbage_size(Actions& out) {
  out.emplace_back(
      "Look for the first error above this one (a timeout of a collective, a "
      "broken checkpoint), and print the shape that is being allocated.");
}

void exhaustion(const OomFacts& f, Actions& out) {
  if (f.family == Family::kTooLarge) {
    garbage_size(out);
    out.emplace_back("No setting and no card serves it; if the shape is meant, work in pieces.");
    return;
  }
  if (f.family == Family::kLibraryStatus || f.family == Family::kLibraryAlloc) {
    out.emplace_back(
        "See nvidia-smi just before it fails: with a full card free some of it (smaller batch, or "
        "torch.cuda.set_per_process_memory_fraction(0.9) to keep PyTorch's cache smaller).");
    out.emplace_back(kRuleOutFault);
  }
  out.emplace_back(
      "Need less at once: smaller batch with gradient accumulation, shorter sequences "
      "or smaller images, mixed precision, activation checkpointing.");
  out.emplace_back("Inference: torch.no_grad() or inference_mode(); keep loss.item(), not loss.");
  out.emplace_back("Optimizer state: 8-bit or fused optimizers, offload, sharding (FSDP, ZeRO).");
  out.emplace_back("A larger card, or more of them: live data does not fit this one.");
  if (f.has(Hint::kCaptureGraphs)) {
    out.emplace_back(
        "CUDA graph capture keeps pools of its own: capture fewer sizes, or run "
        "eagerly (vLLM: --enforce-eager).");
  }
  if (f.process_in_use_is_sentinel || f.has(Hint::kWsl)) {
    out.emplace_back("More host memory does not cure a device allocation on WSL.");
  }
  out.emplace_back(
      "Allocator settings (max_split_size_mb, expandable_segments) cannot create "
      "memory: here they gain next to nothing.");
}

void non_pytorch(const OomFacts& f, Actions& out) {
  out.emplace_back(
      "Compare nvidia-smi's figure for this process with torch.cuda.memory_reserved(): "
      "the difference is context, NCCL, cuBLAS/cuDNN workspaces and other libraries.");
  out.emplace_back(
      "NCCL: fewer process groups, smaller NCCL_BUFFSIZE, fewer channels; create "
      "communicators before PyTorch's cache has filled the card.");
  out.emplace_back(
      "Leave room for libraries: torch.cuda.set_per_process_memory_fraction(0.9) makes "
      "PyTorch return cached memory before the card is full.");
  out.emplace_back(
      "Another framework in the same process: let it grow on demand (TensorFlow: "
      "set_memory_growth, JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false).");
  if (f.family == Family::kLibraryStatus || f.family == Family::kLibraryAlloc) {
    out.emplace_back(kRuleOutFault);
  }
}

void other_process(const OomFacts& f, Actions& out) {
  std::string listed;
  for (size_t i = 0; i < f.listed_processes.size() && i < 4; ++i) {
    listed += (i == 0 ? " (" : ", ") + std::to_string(f.listed_processes[i].pid);
  }
  if (!listed.empty()) listed += ")";
  out.push_back("Find who holds the card: nvidia-smi, or fuser -v /dev/nvidia*" + listed +
                "; end what is left over, or use another card (CUDA_VISIBLE_DEVICES).");
  out.emplace_back(
      "Own children count too: DataLoader workers and ranks that touch CUDA each hold "
      "a context of some hundreds of MiB; pass CPU tensors from workers, one rank per "
      "card, map_location=\"cpu\" when loading.");
  out.emplace_back(
      "Sharing on purpose: give each process a share "
      "(torch.cuda.set_per_process_memory_fraction).");
}

void memory_cap(const OomFacts& f, Actions& out) {
  if (f.family == Family::kServerNoBlocks || f.family == Family::kServerStartup ||
      f.family == Family::kServerWarmUp) {
    out.emplace_back(
        "Raise the server's share (vLLM: gpu_memory_utilization, SGLang: --mem-fraction-static; "
        "the "
        "card must have that much free), or lower max_model_len / --context-length, the number of "
        "sequences at a time, or spread the model (tensor parallel).");
    return;
  }
  if (f.family == Family::kPoolLimit) {
    out.emplace_back(
        "RMM: raise or drop maximum_pool_size, or let the pool spill (managed memory, cudf.spill); "
        "ONNX Runtime: raise gpu_mem_limit, or set arena_extend_strategy to kSameAsRequested so "
        "that "
        "the arena grows by what is needed; Triton server: raise --cuda-memory-pool-byte-size.");
    out.emplace_back("See nvidia-smi: a limit above what the card has free does not help.");
    return;
  }
  if (f.family == Family::kJulia) {
    out.emplace_back(
        "CUDA.jl: raise JULIA_CUDA_HARD_MEMORY_LIMIT (JULIA_CUDA_MEMORY_LIMIT in old versions), or "
        "free arrays sooner (CUDA.unsafe_free!, GC.gc(true)).");
    return;
  }
  if (f.family == Family::kHami) {
    out.emplace_back(
        "Raise the container's limit (nvidia.com/gpumem) or restart the container: an "
        "underflowed \"used\" figure means that the layer's own books are wrong.");
    return;
  }
  if (f.family == Family::kCupy) {
    out.emplace_back(
        "CuPy: raise or remove the pool's limit (CUPY_GPU_MEMORY_LIMIT, set_limit), "
        "or call free_all_blocks() first.");
    return;
  }
  out.emplace_back(
      "Raise or remove the limit: torch.cuda.set_per_process_memory_fraction(), "
      "per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF, or the option of the "
      "program that sets it.");
  out.emplace_back(
      "The limit counts what PyTorch has reserved, cache included: "
      "expandable_segments:True wastes less of it.");
}

void leak(Actions& out) {
  out.emplace_back(
      "Look for tensors that stay alive from step to step: losses or outputs kept in "
      "lists with their graph (use .item() or .detach().cpu()), metrics that keep "
      "logits, evaluation without torch.no_grad().");
  out.emplace_back(
      "Print torch.cuda.memory_allocated() after each step: with a leak it grows at the "
      "same place of every step.");
  out.emplace_back(
      "After a caught exception its traceback keeps the tensors of its frames alive: "
      "leave the except block before retrying.");
  out.emplace_back("Record the run (fragscope run) and compare like steps.");
}

void host_pinned(const OomFacts& f, Actions& out) {
  out.emplace_back(
      "Try once with pin_memory=False: if it passes, page-locking is the limit. Pinned "
      "memory is host memory; it takes no device memory.");
  out.emplace_back(
      "Check ulimit -l (containers: --ulimit memlock=-1); InfiniBand registration "
      "needs it unlimited.");
  out.emplace_back(
      "WSL and Windows limit what can be locked to a part of the RAM; allocate less at "
      "once, or several smaller buffers.");
  out.emplace_back(
      "PyTorch rounds each pinned tensor up to a power of two and keeps it: fewer "
      "prefetched batches (prefetch_factor) and equal sizes help.");
  if (f.memlock_kib) {
    out.push_back("Here the limit is " + std::to_string(*f.memlock_kib) + " KiB.");
  }
}

void shm(Actions& out) {
  out.emplace_back(
      "Look at df -h /dev/shm while it runs. Docker: --shm-size=8g or --ipc=host; "
      "Kubernetes: an emptyDir with medium: Memory mounted on /dev/shm.");
  out.emplace_back(
      "Otherwise need less of it: fewer workers, smaller prefetch_factor, smaller "
      "batches (roughly workers x prefetch_factor x batch bytes lie there).");
  out.emplace_back("num_workers=0 needs none: a quick test of the cause.");
  out.emplace_back("GPU settings do not matter here.");
}

void unknown(const OomFacts& f, Actions& out) {
  switch (f.family) {
    case Family::kKernel:
      out.emplace_back(
          "Ask for less per kernel: smaller block sizes, fewer num_stages (Triton), fewer threads "
          "per "
          "block; no setting of an allocator matters.");
      return;
    case Family::kKilled:
      out.emplace_back(
          "See who sent it: dmesg | grep -i oom, kubectl describe pod (OOMKilled), the scheduler's "
          "log (sacct, scontrol).");
      [[fallthrough]];
    case Family::kWorkerGone:
    case Family::kBadAlloc:
    case Family::kHostRam:
      out.emplace_back(
          "Watch the host's memory (free -m, dmesg | grep -i oom, the container's "
          "limit); fewer workers and smaller prefetch_factor need less.");
      return;
    case Family::kNoSpace:
      out.emplace_back("See which one it is: df -h (disks) and df -h /dev/shm, while it runs.");
      return;
    case Family::kShmHandles:
      out.emplace_back(
          "Raise ulimit -n, or torch.multiprocessing.set_sharing_strategy("
          "\"file_system\").");
      return;
    case Family::kAllocatorAssert:
      out.emplace_back(
          "Remove or correct the setting the message names in "
          "PYTORCH_CUDA_ALLOC_CONF; inner assertions: update torch and report them.");
      return;
    case Family::kTooLarge:
      garbage_size(out);
      return;
    case Family::kNcclUnhandled:
      out.emplace_back("Run again with NCCL_DEBUG=WARN: it names the CUDA error.");
      return;
    case Family::kNative:
    case Family::kAsync:
      out.emplace_back(
          "Ask the program for its limit: torch.cuda.get_per_process_memory_fraction() "
          "(2.7+), or search it for set_per_process_memory_fraction.");
      break;
    default:
      break;
  }
  out.emplace_back(
      "Get the figures: torch.cuda.memory_summary() and nvidia-smi right after the "
      "failure, or record the run (fragscope run).");
  out.emplace_back(
      "See whether another process holds the card (nvidia-smi), and try once with "
      "pin_memory=False.");
}

}  // namespace

std::vector<std::string> private_pool_remedies() {
  return {
      "What a private pool holds idle serves its own graphs only, and no setting of the allocator "
      "changes that. Let graphs that never run at the same time share one pool: "
      "torch.cuda.graph(g, pool=handle) with one torch.cuda.graph_pool_handle() for all.",
      "Capture the largest shape first: graphs of one pool that are captured later then fit into "
      "what it already holds. Capture fewer shapes (vLLM: cudagraph_capture_sizes or "
      "--enforce-eager; torch.compile: mode=\"default\", or mark varying sizes dynamic, instead of "
      "mode=\"reduce-overhead\").",
      "Drop graphs and MemPools that are done (del graph, g.reset(), del pool) and call "
      "torch.cuda.empty_cache(): their segments come back only then.",
      "Allocate outside the capture what need not be in it: inputs, outputs that are copied away, "
      "buffers that several graphs use."};
}

std::vector<std::string> remedies(const OomFacts& facts, const Explanation& explanation) {
  Actions out;
  switch (explanation.verdict) {
    case Verdict::kTrueExhaustion:
      exhaustion(facts, out);
      break;
    case Verdict::kFragmentation:
      fragmentation(facts, out);
      break;
    case Verdict::kNonPytorchMemory:
      non_pytorch(facts, out);
      break;
    case Verdict::kOtherProcess:
      other_process(facts, out);
      break;
    case Verdict::kMemoryFractionCap:
      memory_cap(facts, out);
      break;
    case Verdict::kLeakSuspected:
      leak(out);
      break;
    case Verdict::kHostPinned:
      host_pinned(facts, out);
      break;
    case Verdict::kShm:
      shm(out);
      break;
    case Verdict::kUnknown:
      unknown(facts, out);
      break;
  }
  if (explanation.verdict == Verdict::kFragmentation && explanation.derived.cap) {
    out.emplace_back(
        "Or raise the limit that is in force (set_per_process_memory_fraction): the "
        "device has room above it.");
  }
  return out;
}

}  // namespace fragscope::diagnose
