// Stand-in for cuSOLVER.
#include "simcuda/math/library_stubs.h"

using namespace fragscope::simcuda;

#include "simcuda/math/cusolver.def"
