// Operators that run.deterministic does not allow, since the device has no form of them that gives the same bits every
// time.
#pragma once

#include <exception>
#include <string>

namespace onebatch {

/// What LibTorch calls the one that it has refused: "upsample_bilinear2d_backward_out_cuda"; empty: the error is
/// another.
[[nodiscard]] std::string operation_without_deterministic_form(const std::exception& error);

/// What to say to the user. `place`: where the model calls it, "aten::upsample_bilinear2d, after layer1"; empty: not
/// known.
[[nodiscard]] std::string refusal_of(const std::string& operation, const std::string& place = {});

}  // namespace onebatch
