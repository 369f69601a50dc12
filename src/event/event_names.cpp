#include "event/event_names.h"

namespace fragscope {
namespace {

struct KindRow {
  EventKind kind;
  std::string_view name;
  Plane plane;
};

constexpr KindRow kKinds[] = {
#define EVENT_KIND(name, id, plane) {EventKind::name, #name, Plane::plane},
#include "event/event_kinds.def"
#undef EVENT_KIND
};

const KindRow* find(EventKind kind) {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return &row;
  }
  return nullptr;
}

}  // namespace

std::string_view kind_name(EventKind kind) {
  const KindRow* row = find(kind);
  return row ? row->name : std::string_view("?");
}

std::optional<EventKind> kind_from_name(std::string_view name) {
  for (const KindRow& row : kKinds) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

std::optional<EventKind> kind_from_wire(uint64_t wire_id) {
  for (const KindRow& row : kKinds) {
    if (static_cast<uint64_t>(row.kind) == wire_id) return row.kind;
  }
  return std::nullopt;
}

Plane plane_of(EventKind kind) {
  const KindRow* row = find(kind);
  return row ? row->plane : Plane::mark;
}

std::string_view plane_name(Plane plane) {
  switch (plane) {
    case Plane::driver:
      return "driver";
    case Plane::block:
      return "block";
    case Plane::mark:
      return "mark";
  }
  return "?";
}

}  // namespace fragscope
