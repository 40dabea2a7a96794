#include "launch/compile_command.hpp"

#include "launch/standard_streams.hpp"
#include "trainer/models/class_dim.hpp"
#include "trainer/models/compiling_python.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

CompileWish wish_of(const Arguments& arguments) {
  CompileWish wish;
  wish.program = arguments.program_file;
  wish.precision = arguments.compiled_precision;
  wish.device = arguments.compiled_device;
  wish.deterministic = arguments.compiled_deterministic;
  wish.recompute = arguments.compiled_recompute;
  wish.shared_batch_norm = arguments.compiled_shared_batch_norm;
  wish.evaluation = !arguments.without_evaluation;
  wish.loss.kind = arguments.compiled_loss;
  wish.loss.ignore_index = arguments.ignore_index;
  wish.loss.label_smoothing = arguments.label_smoothing;
  wish.loss.class_weights = arguments.class_weights;
  wish.label_weights = arguments.label_weights;
  k_class_dim(wish.loss) = arguments.class_dim;
  return wish;
}

// Whether the program could be compiled as it validates, too.
bool evaluates(const fs::path& folder) {
  std::ifstream stream(folder / "compiled.json");
  const auto document = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  return document.is_object() && document.contains("evaluation") && !document["evaluation"].contains("why_not");
}

}  // namespace

std::string compile_program(const Arguments& arguments) {
  const std::string& program = arguments.program_file;
  if (!fs::is_regular_file(program))
    throw UserError(program + " is no file: write the path of a program that onebatch.export has written");
  const PythonSearch search = find_compiling_python();
  if (!search.found) throw UserError(why_no_python(search));
  const std::string folder =
      arguments.target_file.empty() ? fs::path(program).replace_extension(".compiled").string() : arguments.target_file;
  ChildRequest request = compile_request(*search.found, wish_of(arguments), folder);
  if (!arguments.quiet) request.out = print_out;
  request.error = print_error;
  const ChildResult result = run_child(request);
  if (result.signal != 0) throw std::runtime_error(fmt::format("Python was ended by signal {}", result.signal));
  if (result.code != 0) throw HasSaidWhy{result.code == 2 ? ExitCode::user_error : ExitCode::failed};
  const nlohmann::ordered_json document = {{"program", program},
                                           {"folder", folder},
                                           {"loss", arguments.compiled_loss},
                                           {"precision", arguments.compiled_precision},
                                           {"device", arguments.compiled_device},
                                           {"deterministic", arguments.compiled_deterministic},
                                           {"recompute", arguments.compiled_recompute},
                                           {"shared_batch_norm", arguments.compiled_shared_batch_norm},
                                           {"evaluation", evaluates(folder)},
                                           {"python", search.found->program}};
  return document.dump(2);
}

}  // namespace onebatch::launch
