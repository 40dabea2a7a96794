// Where a model calls what an error names.
#pragma once

#include "trainer/replica/replica.hpp"

#include <string>

namespace onebatch {

/// The call in a forward of these samples to which a kernel belongs, "upsample_bilinear2d_backward_out_cuda":
/// "aten::upsample_bilinear2d, after layer1"; empty: none has its name. Buffers are left as they were.
std::string called_from(const std::string& kernel, Replica& replica, const Dataset& data,
                        std::span<const std::int64_t> samples);

}  // namespace onebatch
