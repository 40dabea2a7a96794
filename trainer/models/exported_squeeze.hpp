// squeeze() without dimensions. Called with one sample it would take the batch with it, on which the program counts.
#pragma once

#include "trainer/models/exported_names.hpp"

#include <ATen/core/function_schema.h>

namespace onebatch {

/// Of a call of aten::squeeze or squeeze_ without dimensions: it takes those that the program says are one element, and
/// never a size that varies. Other calls stay as they are.
void keep_varying_sizes(Call& call, const c10::FunctionSchema& schema, const JsonReader& node, const GraphNames& names);

}  // namespace onebatch
