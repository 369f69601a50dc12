#include "replay/start_order.h"

#include "tests/support/catch.h"

using namespace fragscope::replay;

TEST_CASE("segments nothing is known of keep the assumed order") {
  StartOrder order;
  order.reset({10, 20, 30}, {});
  CHECK(order.order() == std::vector<uint64_t>{10, 20, 30});
  CHECK(order.choices().empty());
}

TEST_CASE("a choice moves the younger segment behind the older one, and no other") {
  StartOrder order;
  order.reset({10, 20, 30, 40}, {});
  CHECK(order.learn({30, 10}));
  CHECK(order.order() == std::vector<uint64_t>{20, 30, 10, 40});
  CHECK(order.learn({40, 20}));
  CHECK(order.order() == std::vector<uint64_t>{30, 10, 40, 20});
}

TEST_CASE("what is known, impossible or of other segments is not learned") {
  StartOrder order;
  order.reset({10, 20, 30}, {{30, 20}, {20, 10}});
  CHECK(order.order() == std::vector<uint64_t>{30, 20, 10});
  CHECK_FALSE(order.learn({30, 20}));
  CHECK_FALSE(order.learn({30, 10}));  // follows from two choices
  CHECK_FALSE(order.learn({10, 30}));  // against them
  CHECK_FALSE(order.learn({20, 20}));
  CHECK_FALSE(order.learn({10, 99}));
  CHECK_FALSE(order.learn({99, 10}));
  CHECK(order.choices().size() == 2);
}
