// shim_descriptors FILE: closes every descriptor but the first three, as daemons do, opens FILE
// often enough to get all the numbers again, and allocates until a log must grow.
#include <fcntl.h>
#include <unistd.h>

#include "shim_fake.h"

int main(int, char** arguments) {
  void* block = nullptr;
  cudaMalloc(&block, 100);
  for (int fd = 3; fd < 256; ++fd) close(fd);
  for (int fd = 3; fd < 256; ++fd) {
    if (open(arguments[1], O_RDWR | O_CREAT, 0600) < 0) return 1;
  }
  for (int i = 0; i < 20000; ++i) {
    cudaMalloc(&block, 100);
    cudaFree(block);
  }
}
