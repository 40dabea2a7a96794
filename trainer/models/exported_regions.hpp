// Parts of an exported program that run in another mode: torch.no_grad, torch.enable_grad, torch.autocast.
#pragma once

#include "trainer/io/json_reader.hpp"
#include "trainer/models/exported_calls.hpp"

namespace onebatch {

/// What runs a region's graph in its mode.
struct Region {
  std::size_t first_input = 0;  // before it: what the mode is, and the graph
  std::size_t graph = 0;        // the index of its argument
  std::function<void(Block&, torch::jit::Stack&)> run;
};

/// Of a call of "torch.ops.higher_order.…" with these arguments. `mode` outlives the program's runs. Throws UserError
/// where the operator is another one, or its arguments are not as they should be.
Region region_of(const std::string& target, const JsonReader& arguments, const RunMode& mode);

}  // namespace onebatch
