// An argument of a call in an exported program, prepared.
#pragma once

#include "trainer/models/exported_names.hpp"

#include <ATen/core/function_schema.h>

namespace onebatch {

/// For an operator's argument as its schema has it. Throws UserError where the argument's form is not known, or is no
/// value of that type.
Operand operand_for(const c10::Argument& due, const JsonReader& argument, const GraphNames& names);

/// For what has no schema: numbers of symbolic sizes, a region's inputs, outputs.
Operand operand_of(const JsonReader& argument, const GraphNames& names);

}  // namespace onebatch
