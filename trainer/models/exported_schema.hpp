// What an exported program's numbers and words stand for: torch/_export/serde/schema.py numbers types and memory
// formats in its own way, not in c10's.
#pragma once

#include "trainer/io/json_reader.hpp"

#include <ATen/core/ivalue.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

namespace onebatch {

/// Throws UserError, as JsonReader does, where a number has no meaning.
at::ScalarType scalar_type_in(const JsonReader& number);
at::MemoryFormat memory_format_in(const JsonReader& number);
/// Only strided is known.
at::Layout layout_in(const JsonReader& number);

/// One of several forms: {"as_int": 3}. `place` is the whole's.
struct Tagged {
  std::string tag;
  JsonReader value;
};
Tagged tagged(const JsonReader& argument);

}  // namespace onebatch
