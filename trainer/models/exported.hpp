// Programs of torch.export, trained: graphs of PyTorch's own operators, and weights. They hold no code.
#pragma once

#include "trainer/models/model.hpp"

namespace onebatch {

/// What a forward gives back of all that a program returns.
enum class ProgramReturns { one_output, loss_and_weight, every_tensor };

struct ExportedRequest {
  std::string file;
  std::string output = {};  // with one_output: its name or place; empty: a single one, "logits" or the first
  std::optional<std::vector<std::int64_t>> sample_shape = {};  // of the data's first input, where it is known
  bool freeze_batch_norm = false;
  ProgramReturns returns = ProgramReturns::one_output;
  // As messages call them; empty: the file's name.
  std::string file_called = {};
  std::string inputs_called = "data.inputs";
};

/// The program that a file of torch.export.save holds. Throws UserError where it cannot be trained, or does not fit the
/// data.
std::unique_ptr<Model> load_exported(const ExportedRequest& request);

/// The folder of the program's native code, where the run is to use it; empty: none that model.compiled names.
std::string compiled_folder(const ModelConfiguration& model);
/// model.compiled = "auto": the run is to make it by itself, where it can and where that is of use.
bool compiles_by_itself(const ModelConfiguration& model);
/// What has become of "auto"; an empty folder: none.
void set_compiled_folder(ModelConfiguration& model, const std::string& folder);
/// Whether model.output names one of the program's.
bool names_output(const ModelConfiguration& model);

}  // namespace onebatch
