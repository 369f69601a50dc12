// hook_cost calls DEPTH PAIRS | threads N PAIRS: prints nanoseconds.
#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" double bench_calls(int depth, long pairs);
extern "C" double bench_threads(int threads, long pairs);

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int count = std::atoi(argv[2]);
  const long pairs = std::atol(argv[3]);
  const bool threads = std::string(argv[1]) == "threads";
  bench_calls(0, 1);  // the session is made
  std::printf("%.1f\n", threads ? bench_threads(count, pairs) : bench_calls(count, pairs));
}
