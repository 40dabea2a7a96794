// This library's version, as CMakeLists.txt has it.
#pragma once

namespace onebatch {

inline constexpr const char* k_version = "0.1.0";

}  // namespace onebatch
