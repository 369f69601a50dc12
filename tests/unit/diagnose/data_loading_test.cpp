#include "diagnose/data_loading.h"

#include "base/bytes.h"
#include "tests/support/catch.h"

using namespace fragscope;
using namespace fragscope::diagnose;

namespace {

LoadingFacts run() {
  LoadingFacts facts;
  facts.card_bytes = 24 * kGiB;
  facts.pinned_peak = facts.pinned_torch = 8 * kMiB;
  facts.batch_bytes = 3 * kMiB;
  facts.workers = 4;
  facts.workers_with_device = 0;
  facts.worker_bytes = 500 * kMiB;
  facts.shm_peak = 24 * kMiB;
  facts.shm_total = 8 * kGiB;
  facts.available_least = 16 * kGiB;
  facts.cores = 16;
  return facts;
}

const LoadingRule& rule(const LoadingAdvice& advice, const std::string& name) {
  for (const LoadingRule& each : advice.rules) {
    if (each.name == name) return each;
  }
  FAIL("no rule " + name);
  return advice.rules.front();
}

RuleVerdict judged(const LoadingFacts& facts, const std::string& name) {
  return rule(advise_loading(facts), name).verdict;
}

}  // namespace

TEST_CASE("data loading: workers that nobody could have seen are undecidable, not none") {
  LoadingFacts facts;
  facts.pinned_peak = kMiB;
  facts.looked_too_seldom = true;
  const LoadingAdvice advice = advise_loading(facts);
  size_t about_workers = 0;
  for (const LoadingRule& rule : advice.rules) {
    if (rule.name == "no_pinning_up_to_8gb") continue;
    ++about_workers;
    CHECK(rule.verdict == RuleVerdict::undecidable);
    CHECK(rule.why.find("too seldom") != std::string::npos);
  }
  CHECK(about_workers == 2);
}

TEST_CASE("data loading: get_optimal_workers") {
  CHECK(tutorial_workers(1) == 0);
  CHECK(tutorial_workers(2) == 1);
  CHECK(tutorial_workers(4) == 3);
  CHECK(tutorial_workers(6) == 3);
  CHECK(tutorial_workers(12) == 6);
  CHECK(tutorial_workers(64) == 8);
}

TEST_CASE("data loading: 256 MB for each worker is held against what was pinned") {
  LoadingFacts facts = run();
  CHECK(judged(facts, "256_mb_per_worker") == RuleVerdict::fails);
  CHECK(rule(advise_loading(facts), "256_mb_per_worker").bytes == 8 * kMiB);
  facts.pinned_torch = 4 * 250 * kMiB;
  CHECK(judged(facts, "256_mb_per_worker") == RuleVerdict::holds);
  facts.workers = 0;
  CHECK(judged(facts, "256_mb_per_worker") == RuleVerdict::undecidable);
  facts.workers.reset();
  CHECK(judged(facts, "256_mb_per_worker") == RuleVerdict::undecidable);
}

TEST_CASE("data loading: halving workers frees the host's memory and not the device's") {
  LoadingFacts facts = run();
  CHECK(judged(facts, "halve_workers") == RuleVerdict::undecidable);
  facts.device_refused = true;
  CHECK(judged(facts, "halve_workers") == RuleVerdict::fails);
  CHECK(rule(advise_loading(facts), "halve_workers").bytes == 2 * 500 * kMiB + 12 * kMiB);
  facts.workers_with_device = 4;
  CHECK(judged(facts, "halve_workers") == RuleVerdict::holds);
  facts = run();
  facts.host_refused = true;
  CHECK(judged(facts, "halve_workers") == RuleVerdict::holds);
  facts.workers = 0;
  CHECK(judged(facts, "halve_workers") == RuleVerdict::fails);
}

TEST_CASE("data loading: pinning on a small card costs the host, not the card") {
  LoadingFacts facts = run();
  CHECK(judged(facts, "no_pinning_up_to_8gb") == RuleVerdict::undecidable);
  facts.card_bytes = 8 * kGiB;
  CHECK(judged(facts, "no_pinning_up_to_8gb") == RuleVerdict::fails);
  facts.available_least = 50 * kMiB;
  CHECK(judged(facts, "no_pinning_up_to_8gb") == RuleVerdict::holds);
  facts.pinned_peak = 0;
  CHECK(judged(facts, "no_pinning_up_to_8gb") == RuleVerdict::undecidable);
}

TEST_CASE("data loading: workers follow the waiting that was measured, within what there is") {
  LoadingFacts facts = run();
  facts.step_seconds = 0.1;
  facts.wait_seconds = 0.05;
  CHECK(advise_loading(facts).recommended == 8u);
  facts.cores = 6;
  CHECK(advise_loading(facts).recommended == 5u);
  facts.wait_seconds = 0.001;
  CHECK(advise_loading(facts).recommended == 4u);
  facts.wait_seconds = 0.05;
  facts.cores = 64;
  facts.shm_total = 30 * kMiB;
  CHECK(advise_loading(facts).recommended == 5u);
  facts.shm_total = 8 * kGiB;
  facts.available_least = 1100 * kMiB;
  CHECK(advise_loading(facts).recommended == 5u);
}

TEST_CASE("data loading: a simulated card does not tell how long a loop waits") {
  LoadingFacts facts = run();
  facts.simulated = true;
  facts.step_seconds = 0.1;
  facts.wait_seconds = 0.05;
  const LoadingAdvice advice = advise_loading(facts);
  CHECK(advice.recommended == tutorial_workers(16));
  CHECK(advice.reasons.front().find("simulated") != std::string::npos);
}

TEST_CASE("data loading: what every table says stands beside it") {
  LoadingFacts facts = run();
  const LoadingAdvice advice = advise_loading(facts);
  CHECK(advice.counts.size() == 6);
  CHECK(advice.counts[0].most == 8u);
  CHECK(advice.counts[1].least == 4u);  // 16 cores
  CHECK(advice.counts[2].least == 8u);  // 24 GiB
  CHECK(advice.counts[2].pinning == true);
  facts.card_bytes = 8 * kGiB;
  CHECK(advise_loading(facts).counts[2].most == 4u);
  CHECK(advise_loading(facts).counts[2].pinning == false);
  facts.card_bytes = 16 * kGiB;
  CHECK(advise_loading(facts).counts[2].most == 6u);
  const std::string text = loading_text(facts, advice);
  CHECK(text.find("get_optimal_workers: 8") != std::string::npos);
  CHECK(text.find("\"each worker takes 256 MB of pinned memory\": false") != std::string::npos);
}

TEST_CASE("data loading: nothing known is nothing said") {
  const LoadingAdvice advice = advise_loading({});
  CHECK_FALSE(advice.recommended);
  for (const LoadingRule& each : advice.rules) CHECK(each.verdict == RuleVerdict::undecidable);
}
