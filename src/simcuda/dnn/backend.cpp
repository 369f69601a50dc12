// cuDNN's backend API: a descriptor is a type and attributes (name -> typed array). Setting stores,
// finalizing freezes; what a caller may ask for that it has not set is computed from what was set:
// the engines of an operation graph, and the workspace of an execution plan (convolution_plan.h).
//
// Descriptors that are put into others share their body, so callers may destroy them at once, as
// the API allows.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "simcuda/dnn/dnn_common.h"

using namespace fragscope::simcuda;

namespace {

// cudnnBackendDescriptorType_t, where this file treats a type by itself.
enum DescriptorType : int {
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kConvolutionForward = 10,
  kConvolutionBackwardFilter = 11,
  kConvolutionBackwardData = 12,
  kOperationGraph = 15,
};
// cudnnBackendAttributeType_t
enum AttributeType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypeDouble = 5,
  kTypeVoidPointer = 6,
  kTypeNumericalNote = 11,
  kTypeDescriptor = 15,
  kTypeInt32 = 23,
  kTypeChar = 24,
  kTypeFraction = 26,
};
// cudnnBackendAttributeName_t
enum AttributeName : int {
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kConfigSharedMemory = 304,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kPlanJson = 405,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kBackwardFilterDw = 715,
  kBackwardFilterX = 716,
  kBackwardFilterDy = 717,
  kGraphOperations = 801,
  kGraphEngineCount = 802,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNote = 1303,
};
constexpr int32_t kNoteTensorCore = 0;  // CUDNN_NUMERICAL_NOTE_TENSOR_CORE
// Of any plan: what every device grants a block without asking.
constexpr int32_t kSharedMemoryBytes = 49152;

struct Body;
using SharedBody = std::shared_ptr<Body>;

struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<SharedBody> bodies;
};
struct Body {
  int type = 0;
  bool finalized = false;
  std::map<int, Attribute> attributes;
};
struct Descriptor {
  SharedBody body;
};

size_t element_bytes(int type) {
  switch (type) {
    case kTypeBoolean:
    case kTypeChar:
      return 1;
    case kTypeHandle:
    case kTypeInt64:
    case kTypeDouble:
    case kTypeVoidPointer:
    case kTypeDescriptor:
    case kTypeFraction:  // two int64; never read here
      return 8;
    default:  // enumerations, float, int32
      return 4;
  }
}

const Attribute* find(const Body& body, int name) {
  const auto found = body.attributes.find(name);
  return found == body.attributes.end() ? nullptr : &found->second;
}

SharedBody body_at(const Body& body, int name, size_t index = 0) {
  const Attribute* attribute = find(body, name);
  return attribute == nullptr || index >= attribute->bodies.size() ? nullptr
                                                                   : attribute->bodies[index];
}

std::vector<int64_t> integers(const Body& body, int name) {
  const Attribute* attribute = find(body, name);
  if (attribute == nullptr || attribute->type != kTypeInt64) return {};
  std::vector<int64_t> values(static_cast<size_t>(attribute->count));
  std::memcpy(values.data(), attribute->bytes.data(), attribute->bytes.size());
  return values;
}

Attribute integer(int64_t value) {
  Attribute made{kTypeInt64, 1, std::vector<std::byte>(sizeof value), {}};
  std::memcpy(made.bytes.data(), &value, sizeof value);
  return made;
}

DnnTensor tensor_of(const Body& operation, int name) {
  DnnTensor tensor;
  const SharedBody body = body_at(operation, name);
  if (body == nullptr) return tensor;
  tensor.sizes = integers(*body, kTensorDimensions);
  tensor.strides = integers(*body, kTensorStrides);
  const Attribute* type = find(*body, kTensorDataType);
  if (type != nullptr && type->bytes.size() >= 4) {
    std::memcpy(&tensor.type, type->bytes.data(), 4);
  }
  return tensor;
}

std::optional<ConvolutionProblem> convolution_of(const Body& operation) {
  const auto problem = [&](ConvolutionKind kind, int input, int filter, int output) {
    return ConvolutionProblem{kind, tensor_of(operation, input), tensor_of(operation, filter),
                              tensor_of(operation, output)};
  };
  switch (operation.type) {
    case kConvolutionForward:
      return problem(ConvolutionKind::kForward, kForwardX, kForwardW, kForwardY);
    case kConvolutionBackwardData:
      return problem(ConvolutionKind::kBackwardData, kBackwardDataDx, kBackwardDataW,
                     kBackwardDataDy);
    case kConvolutionBackwardFilter:
      return problem(ConvolutionKind::kBackwardFilter, kBackwardFilterX, kBackwardFilterDw,
                     kBackwardFilterDy);
    default:
      return std::nullopt;
  }
}

// The engines of a graph are the plans of its first convolution; any other graph is one kernel
// without workspace.
std::vector<ConvolutionPlan> plans_of(const Body* graph) {
  const Attribute* operations = graph == nullptr ? nullptr : find(*graph, kGraphOperations);
  if (operations != nullptr) {
    for (const SharedBody& operation : operations->bodies) {
      if (const auto problem = convolution_of(*operation)) {
        return convolution_plans(*problem, dnn_device());
      }
    }
  }
  return {{"fused_graph", 0, false}};
}

void note_convolutions(const Body& execution_plan) {
  const SharedBody config = body_at(execution_plan, kPlanConfig);
  const SharedBody engine = config == nullptr ? nullptr : body_at(*config, kConfigEngine);
  const SharedBody graph = engine == nullptr ? nullptr : body_at(*engine, kEngineGraph);
  const Attribute* operations = graph == nullptr ? nullptr : find(*graph, kGraphOperations);
  if (operations == nullptr) return;
  for (const SharedBody& operation : operations->bodies) {
    if (const auto problem = convolution_of(*operation)) note_largest_workspace(*problem);
  }
}

// The plan that an engine of a graph stands for; none: no such engine.
std::optional<ConvolutionPlan> plan_of_engine(const Body& engine) {
  const SharedBody graph = body_at(engine, kEngineGraph);
  const std::vector<int64_t> index = integers(engine, kEngineIndex);
  const auto plans = plans_of(graph.get());
  if (index.empty() || index[0] < 0 || static_cast<size_t>(index[0]) >= plans.size()) {
    return std::nullopt;
  }
  return plans[static_cast<size_t>(index[0])];
}

std::optional<ConvolutionPlan> plan_of(const Body& execution_plan) {
  const SharedBody config = body_at(execution_plan, kPlanConfig);
  const SharedBody engine = config == nullptr ? nullptr : body_at(*config, kConfigEngine);
  return engine == nullptr ? std::nullopt : plan_of_engine(*engine);
}

Attribute engine_configurations(const Body& heuristics) {
  Attribute results{kTypeDescriptor, 0, {}, {}};
  const SharedBody graph = body_at(heuristics, kHeuristicsGraph);
  const auto plans = plans_of(graph.get());
  for (size_t i = 0; i < plans.size(); ++i) {
    auto engine = std::make_shared<Body>(Body{kEngine, true, {}});
    if (graph != nullptr) engine->attributes[kEngineGraph] = {kTypeDescriptor, 1, {}, {graph}};
    engine->attributes[kEngineIndex] = integer(static_cast<int64_t>(i));
    auto config = std::make_shared<Body>(Body{kEngineConfig, true, {}});
    config->attributes[kConfigEngine] = {kTypeDescriptor, 1, {}, {engine}};
    results.bodies.push_back(std::move(config));
  }
  results.count = static_cast<int64_t>(plans.size());
  return results;
}

Attribute word(int type, int32_t value) {
  Attribute made{type, 1, std::vector<std::byte>(sizeof value), {}};
  std::memcpy(made.bytes.data(), &value, sizeof value);
  return made;
}

Attribute text(const std::string& value) {
  Attribute made{kTypeChar, static_cast<int64_t>(value.size() + 1), {}, {}};
  made.bytes.resize(value.size() + 1);
  std::memcpy(made.bytes.data(), value.c_str(), value.size() + 1);
  return made;
}

// What a caller asks for that nobody has set. Nothing known: no elements.
Attribute computed(const Body& body, int name) {
  if (body.type == kHeuristics && name == kHeuristicsResults) return engine_configurations(body);
  if (body.type == kOperationGraph && name == kGraphEngineCount) {
    return integer(static_cast<int64_t>(plans_of(&body).size()));
  }
  if (body.type == kPlan && (name == kPlanWorkspace || name == kPlanJson)) {
    const auto plan = plan_of(body);
    if (name == kPlanWorkspace) {
      const uint64_t bytes = plan ? plan->workspace_bytes : 0;
      note_assumed_size(kPlanWorkspaceName, bytes);
      return integer(static_cast<int64_t>(bytes));
    }
    return text(std::string("{\"simulated_plan\":\"") + (plan ? plan->name : "none") + "\"}");
  }
  if (body.type == kEngine && name == kEngineNumericalNote) {
    const auto plan = plan_of_engine(body);
    return plan && plan->tensor_cores ? word(kTypeNumericalNote, kNoteTensorCore) : Attribute{};
  }
  if (body.type == kEngineConfig && name == kConfigSharedMemory) {
    return word(kTypeInt32, kSharedMemoryBytes);
  }
  return {};
}

DnnStatus hand_out(const Attribute& attribute, int64_t room, int64_t* count, void* out) {
  const auto elements = static_cast<size_t>(std::min(room, attribute.count));
  // Of lists of descriptors, callers expect the number that was filled in.
  const bool filled = room > 0 && !attribute.bodies.empty();
  if (count != nullptr) *count = filled ? static_cast<int64_t>(elements) : attribute.count;
  if (elements == 0 || out == nullptr) return kDnnSuccess;
  if (attribute.bodies.empty()) {
    const size_t each = attribute.bytes.size() / static_cast<size_t>(attribute.count);
    std::memcpy(out, attribute.bytes.data(), elements * each);
    return kDnnSuccess;
  }
  auto* const* const descriptors = static_cast<Descriptor**>(out);
  for (size_t i = 0; i < elements; ++i) {
    if (descriptors[i] == nullptr) return kDnnBadParam;
    descriptors[i]->body = attribute.bodies[i];
  }
  return kDnnSuccess;
}

template <typename Run>
DnnStatus guarded(Run run) noexcept {
  try {
    return run();
  } catch (...) {
    return kDnnAllocFailed;
  }
}

}  // namespace

DNN_EXPORT int cudnnBackendCreateDescriptor(int type, Descriptor** out) {
  return guarded([&] {
    if (out == nullptr || type < 0) return kDnnBadParam;
    *out = new Descriptor{std::make_shared<Body>(Body{type, false, {}})};
    return kDnnSuccess;
  });
}
DNN_EXPORT int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  return dnn_destroy(descriptor);
}

DNN_EXPORT int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int type, int64_t count,
                                        const void* elements) {
  return guarded([&] {
    if (descriptor == nullptr || count < 0 || (count > 0 && elements == nullptr)) {
      return kDnnBadParam;
    }
    if (descriptor->body->finalized) return kDnnBadParam;
    Attribute attribute{type, count, {}, {}};
    if (type == kTypeDescriptor) {
      auto* const* const given = static_cast<Descriptor* const*>(elements);
      for (int64_t i = 0; i < count; ++i) {
        if (given[i] == nullptr) return kDnnBadParam;
        attribute.bodies.push_back(given[i]->body);
      }
    } else {
      attribute.bytes.resize(static_cast<size_t>(count) * element_bytes(type));
      if (count > 0) std::memcpy(attribute.bytes.data(), elements, attribute.bytes.size());
    }
    descriptor->body->attributes[name] = std::move(attribute);
    return kDnnSuccess;
  });
}

DNN_EXPORT int cudnnBackendFinalize(Descriptor* descriptor) {
  return guarded([&] {
    if (descriptor == nullptr) return kDnnBadParam;
    // Engines are asked for by number, too (lists of fallbacks): not all exist.
    const Body& body = *descriptor->body;
    if (body.type == kEngine && !plan_of_engine(body)) return kDnnNotSupported;
    if (body.type == kPlan && !plan_of(body)) return kDnnNotSupported;
    descriptor->body->finalized = true;
    return kDnnSuccess;
  });
}

DNN_EXPORT int cudnnBackendGetAttribute(Descriptor* descriptor, int name, int, int64_t requested,
                                        int64_t* count, void* elements) {
  return guarded([&] {
    if (descriptor == nullptr || requested < 0) return kDnnBadParam;
    const Attribute* stored = find(*descriptor->body, name);
    return hand_out(stored != nullptr ? *stored : computed(*descriptor->body, name), requested,
                    count, elements);
  });
}

DNN_EXPORT int cudnnBackendExecute(DnnHandle* handle, Descriptor* execution_plan, Descriptor*) {
  return guarded([&] {
    if (execution_plan == nullptr) return kDnnBadParam;
    const auto plan = plan_of(*execution_plan->body);
    if (!plan) return kDnnBadParam;
    note_convolutions(*execution_plan->body);
    return dnn_work(handle, (std::string("cudnn_") + plan->name).c_str());
  });
}
