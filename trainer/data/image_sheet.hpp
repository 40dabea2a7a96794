// Images side by side in one picture.
#pragma once

#include "trainer/data/data_report.hpp"

#include <ATen/core/Tensor.h>

namespace onebatch {

/// Of images [N, channels, H, W]: numbers, of which the least of all is black and the largest white, or bytes as they
/// are. Three channels are red, green and blue; of another number the first is shown, in grey. `columns` in a row, the
/// small ones enlarged.
SheetOfImages sheet_of(const at::Tensor& images, std::int64_t columns);

}  // namespace onebatch
