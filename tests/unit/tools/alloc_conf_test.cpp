#include "tools/alloc_conf.h"

#include "tests/support/catch.h"

using namespace fragscope::tools;

TEST_CASE("the given key replaces the user's, the user's other keys stay") {
  CHECK(merge_alloc_conf("", "a:1") == "a:1");
  CHECK(merge_alloc_conf("a:1", "") == "a:1");
  CHECK(merge_alloc_conf("a:1,b:2", "b:3") == "a:1,b:3");
  CHECK(merge_alloc_conf("a:1, b :2,c:3", "b:4,d:5") == "a:1,c:3,b:4,d:5");
}

TEST_CASE("commas inside brackets do not separate settings") {
  CHECK(merge_alloc_conf("r:[256:1,512:2,>:8],g:0.5", "g:0.6") == "r:[256:1,512:2,>:8],g:0.6");
}

TEST_CASE("the option of its own wins over --alloc-conf") {
  CHECK(requested_alloc_conf(std::nullopt, "a:1") == "a:1");
  CHECK(requested_alloc_conf(64, "") == "max_split_size_mb:64");
  CHECK(requested_alloc_conf(64, "max_split_size_mb:32,a:1") == "a:1,max_split_size_mb:64");
}

TEST_CASE("each release has its own order of variables") {
  const Environment both = {"PYTORCH_ALLOC_CONF=a:1", "PYTORCH_CUDA_ALLOC_CONF=b:2"};
  const Environment generic = {"PYTORCH_ALLOC_CONF=a:1"};
  CHECK(effective_alloc_conf(both, "2.15.0+cu132") == "b:2");
  CHECK(effective_alloc_conf(both, "2.6.0") == "b:2");
  CHECK(effective_alloc_conf(generic, "2.15.0") == "a:1");
  CHECK(effective_alloc_conf(generic, "2.9.1").empty());
  CHECK(effective_alloc_conf({"PYTORCH_HIP_ALLOC_CONF=h:1", "PYTORCH_ALLOC_CONF=a:1"}, "2.10") ==
        "h:1");
}

TEST_CASE("what the release would refuse is refused before") {
  const Environment user = {"PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8"};
  const auto good = native_alloc_conf(user, "max_split_size_mb:128", "2.6.0");
  REQUIRE(good.ok());
  CHECK(good.value() == "garbage_collection_threshold:0.8,max_split_size_mb:128");
  const auto small = native_alloc_conf(user, "max_split_size_mb:3", "2.6.0");
  REQUIRE_FALSE(small.ok());
  CHECK(small.error().code == fragscope::ErrorCode::kInvalidArgument);
  CHECK(small.error().text.find("2.6.0") != std::string::npos);
  CHECK_FALSE(native_alloc_conf({}, "no_such_key:1", "").ok());
}
