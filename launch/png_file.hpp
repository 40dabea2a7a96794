// Pictures in the PNG format, by libpng.
#pragma once

#include "trainer/data/data_report.hpp"

#include <string>

namespace onebatch::launch {

/// The bytes of a PNG file. Throws std::runtime_error with libpng's words.
std::string png_of(const SheetOfImages& sheet);

}  // namespace onebatch::launch
