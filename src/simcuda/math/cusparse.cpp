// Stand-in for cuSPARSE. Matrices of unknown content have no entries: what the library would count
// is 0.
#include "simcuda/math/library_stubs.h"

using namespace fragscope::simcuda;

#include "simcuda/math/cusparse.def"

LIBRARY_EXPORT const char* cusparseGetErrorString(int status) {
  return status == kLibrarySuccess ? "success" : "the simulated device refused the work";
}
LIBRARY_EXPORT const char* cusparseGetErrorName(int status) {
  return status == kLibrarySuccess ? "CUSPARSE_STATUS_SUCCESS" : "CUSPARSE_STATUS_EXECUTION_FAILED";
}
