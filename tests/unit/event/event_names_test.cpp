#include "event/event_names.h"

#include "tests/support/catch.h"

using namespace fragscope;

TEST_CASE("every kind is found by its name and its wire id") {
  int kinds = 0;
  for (uint64_t wire = 1; wire < 200; ++wire) {
    const auto kind = kind_from_wire(wire);
    if (!kind) continue;
    ++kinds;
    CHECK(kind_from_name(kind_name(*kind)) == kind);
  }
  CHECK(kinds == 65);
  CHECK_FALSE(kind_from_wire(0));
  CHECK_FALSE(kind_from_name("none"));
}

TEST_CASE("planes") {
  CHECK(plane_of(EventKind::device_alloc) == Plane::driver);
  CHECK(plane_of(EventKind::free_completed) == Plane::block);
  CHECK(plane_name(plane_of(EventKind::mark)) == "mark");
}
