#include "trainer/models/exported_squeeze.hpp"

#include "trainer/models/exported_schema.hpp"

#include <ATen/core/dispatch/Dispatcher.h>

namespace onebatch {

void keep_varying_sizes(Call& call, const c10::FunctionSchema& schema, const JsonReader& node,
                        const GraphNames& names) {
  const bool is_squeeze = schema.name() == "aten::squeeze" || schema.name() == "aten::squeeze_";
  if (!is_squeeze || !schema.overload_name().empty()) return;
  const auto [tag, value] = tagged(node.field("inputs").item(0).field("arg"));
  if (tag != "as_tensor") return;
  const auto sizes = names.sizes_of(value.field("name").text());
  if (!sizes) return;
  std::vector<std::int64_t> dimensions;
  for (std::size_t d = 0; d < sizes->array_size("sizes"); ++d) {
    const auto [form, size] = tagged(sizes->item(d));
    if (form == "as_int" && size.integer(0, INT64_MAX) == 1) dimensions.push_back(static_cast<std::int64_t>(d));
  }
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(schema.name().c_str(), "dims");
  call.make = [op, dimensions = std::move(dimensions)](torch::jit::Stack& stack) {
    stack.emplace_back(dimensions);
    op.callBoxed(stack);
  };
}

}  // namespace onebatch
