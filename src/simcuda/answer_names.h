// What the ledger calls (Ledger::Kind::kAnswer) reads that no row of answers fits.
#pragma once

namespace fragscope::simcuda {

inline constexpr const char* kZeroAnswer = "zero";             // of at most 8 bytes
inline constexpr const char* kZerosAnswer = "zeros, in bulk";  // of more

}  // namespace fragscope::simcuda
