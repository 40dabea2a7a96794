// From an exported program's graph to the list of calls that runs.
#pragma once

#include "trainer/models/exported_aliases.hpp"
#include "trainer/models/exported_draws.hpp"
#include "trainer/models/exported_layers.hpp"
#include "trainer/models/exported_phase.hpp"

#include <map>
#include <memory>

namespace onebatch {

class GraphCompiler {
 public:
  /// `mode` outlives what is compiled.
  GraphCompiler(const ExportedState& state, RunLiterals& literals, ProgramDraws draws, const RunMode& mode)
      : state_(state), literals_(literals), draws_(std::move(draws)), mode_(mode) {}

  /// The program's own graph. Throws UserError with the place of what is not known: operators, arguments, names.
  Block compile(const JsonReader& graph);
  /// Of what was compiled.
  [[nodiscard]] const std::vector<LayerCall>& layer_calls() const { return layers_.calls(); }

 private:
  struct Scope {
    JsonReader graph;
    GraphNames names;
    Block block;
    std::size_t number;  // of the block, among all
  };
  struct View {
    SharedMemory::Value of;
    std::shared_ptr<bool> may_copy;
  };

  Scope open(const JsonReader& graph);
  void add_nodes(Scope& scope);
  void close(Scope& scope);
  void add_node(Scope& scope, const JsonReader& node);
  void add_operator(Scope& scope, const JsonReader& node, const std::string& target);
  void add_symbol(Scope& scope, const JsonReader& node, const std::string& target);
  void add_assertion(Scope& scope, const JsonReader& node);
  void add_region(Scope& scope, const JsonReader& node, const std::string& target);
  void take_arguments(Scope& scope, const JsonReader& node, const c10::FunctionSchema& schema, Call& call);
  void convert_whole_numbers(Scope& scope, const JsonReader& node, const c10::FunctionSchema& schema, Call& call);
  void take_results(Scope& scope, const JsonReader& node, Call& call);

  const ExportedState& state_;
  RunLiterals& literals_;
  ProgramDraws draws_;
  const RunMode& mode_;
  SharedMemory memory_;
  ProgramLayers layers_;
  std::vector<View> views_;
  std::size_t num_blocks_ = 0;
};

}  // namespace onebatch
