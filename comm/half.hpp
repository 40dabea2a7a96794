// IEEE binary16 and bfloat16 to and from float32, to nearest even: what MPI has no type for.
#pragma once

#include <cstdint>

namespace onebatch::comm {

float half_to_float(std::uint16_t bits);
std::uint16_t float_to_half(float value);
float bfloat16_to_float(std::uint16_t bits);
std::uint16_t float_to_bfloat16(float value);

}  // namespace onebatch::comm
