#include "trainer/models/torchscript.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/models/checked_files.hpp"
#include "trainer/models/keyed_randomness.hpp"
#include "trainer/models/model_kind.hpp"
#include "trainer/models/script_archive.hpp"
#include "trainer/models/script_graph.hpp"
#include "trainer/models/script_layers.hpp"
#include "trainer/models/script_tensors.hpp"
#include "trainer/models/single_values.hpp"
#include "trainer/models/torchscript_state.hpp"
#include "trainer/models/trainable_module.hpp"
#include "trainer/settings/key_types.hpp"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

namespace onebatch {
namespace {

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// TorchScript's profiling executor differentiates and rewrites dropout and batch_norm itself, where no operator's
// kernel sees them.
void keep_operators_visible() {
  torch::jit::getProfilingMode() = false;
  torch::jit::setGraphExecutorOptimize(false);
}

struct Loaded {
  torch::jit::Module module;
  std::set<std::string> non_persistent;  // buffers
};

class TorchScriptModel final : public Model {
 public:
  TorchScriptModel(Loaded loaded, const TorchScriptRequest& request)
      : module_(std::move(loaded.module)),
        non_persistent_(std::move(loaded.non_persistent)),
        file_(request.file),
        freeze_(request.freeze_batch_norm),
        returns_loss_(request.returns_loss),
        graph_(module_, file_, freeze_ ? BatchNormUse::frozen : BatchNormUse::as_written) {
    separate_expanded_buffers(module_);
    for (const BatchNormCall& call : graph_.batch_norms()) {
      for (const std::string& name : call.affine)
        batch_norm_tensors_.insert(tensor_named(module_, name).unsafeGetTensorImpl());
      for (const std::string& name : call.statistics)
        running_statistics_.insert(tensor_named(module_, name).unsafeGetTensorImpl());
    }
    batch_norm_tensors_.insert(running_statistics_.begin(), running_statistics_.end());
    for (const auto& [name, tensor] : buffers()) buffer_types_[tensor.unsafeGetTensorImpl()] = tensor.scalar_type();
    literals_ = literals_of(module_);
    set_phase(Phase::training);
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const ForwardContext& context) override {
    torch::jit::setGraphExecutorOptimize(false);  // of this thread
    const RandomnessScope scope(context);
    std::optional<SingleValues> single_values;  // running statistics are asked for no others beside them
    if (freeze_) single_values.emplace();
    check_takes(inputs.size());
    const c10::IValue outputs = forward_in(scope, inputs);
    if (outputs.isTensor()) return {outputs.toTensor()};
    if (returns_loss_ && outputs.isTuple() && outputs.toTupleRef().elements().size() == 2) {
      const auto& pair = outputs.toTupleRef().elements();
      if (pair[0].isTensor() && pair[1].isTensor()) return {pair[0].toTensor(), pair[1].toTensor()};
    }
    throw UserError(file_ + ": the model returns " + outputs.type()->annotation_str() + ", not " +
                    (returns_loss_
                         ? "two tensors: for loss.kind = \"model\" its forward returns the loss's sum and its weight"
                         : "a tensor: wrap it in a module whose forward returns the outputs alone"));
  }

  std::vector<NamedTensor> parameters() const override { return unique_parameters(module_); }
  std::vector<NamedTensor> buffers() const override { return unique_buffers(module_); }
  std::vector<NamedTensor> state_dict() const override { return state_dict_of(module_, non_persistent_); }
  std::optional<std::vector<at::Tensor>> literals() const override { return literals_; }
  std::vector<NamedText> attributes() const override { return attributes_of(module_); }

  std::optional<std::vector<LayerCall>> layer_calls() const override { return layer_calls_of(module_); }

  void set_phase(Phase phase) override { module_.train(phase == Phase::training); }

  void move_to(c10::Device device, at::ScalarType type, at::ScalarType batch_norm_type) override {
    const auto move = [&](const at::Tensor& tensor, at::ScalarType to) {
      const bool of_batch_norm = batch_norm_tensors_.contains(tensor.unsafeGetTensorImpl());
      tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
      at::Tensor(tensor).set_data(tensor.to(device, of_batch_norm && c10::isFloatingType(to) ? batch_norm_type : to));
    };
    for (const auto& [name, tensor] : parameters())
      move(tensor, tensor.is_floating_point() ? type : tensor.scalar_type());
    for (const auto& [name, tensor] : buffers()) {
      const auto known = buffer_types_.find(tensor.unsafeGetTensorImpl());  // a forward may have set others
      move(tensor, graph_.type_in_run(known == buffer_types_.end() ? tensor.scalar_type() : known->second, type));
    }
    graph_.move_to(device, type);
    literals_ = literals_of(module_);  // some were replaced
  }

  std::vector<std::string> batch_norm_layers() const override {
    std::vector<std::string> names;
    for (const BatchNormCall& call : graph_.batch_norms()) {
      if (call.of_the_batch && std::find(names.begin(), names.end(), call.layer) == names.end())
        names.push_back(call.layer);
    }
    return names;
  }

  std::vector<std::string> running_statistics() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : buffers()) {
      if (running_statistics_.contains(tensor.unsafeGetTensorImpl())) names.push_back(name);
    }
    return names;
  }

 private:
  // The interpreter makes another exception of what an operator throws: what it is to say to the user is said all the
  // same.
  c10::IValue forward_in(const RandomnessScope& scope, const std::vector<at::Tensor>& inputs) {
    try {
      return module_.forward({inputs.begin(), inputs.end()});
    } catch (const std::exception&) {
      if (scope.refusal()) std::rethrow_exception(scope.refusal());
      throw;
    }
  }

  void check_takes(std::size_t given) const {
    const auto& schema = module_.get_method("forward").function().getSchema();
    const std::size_t takes = schema.arguments().size() - 1;  // but for itself
    const auto needs = static_cast<std::size_t>(
        std::count_if(schema.arguments().begin() + 1, schema.arguments().end(),
                      [](const c10::Argument& argument) { return !argument.default_value(); }));
    if (given >= needs && given <= takes) return;
    throw UserError(
        fmt::format("{}: the model's forward takes {} tensor(s), but is given {}{}: name the tensors that it takes in "
                    "data.inputs, in its order",
                    file_, takes, given, returns_loss_ ? " (data.inputs, and the target last)" : " (data.inputs)"));
  }

  mutable torch::jit::Module module_;
  std::set<std::string> non_persistent_;
  std::vector<at::Tensor> literals_;
  std::string file_;
  bool freeze_;
  bool returns_loss_;
  ScriptGraph graph_;
  std::set<const c10::TensorImpl*> batch_norm_tensors_;  // parameters and buffers
  std::set<const c10::TensorImpl*> running_statistics_;
  std::map<const c10::TensorImpl*, at::ScalarType> buffer_types_;  // that the file has
  std::shared_ptr<void> keyed_operators_ = hold_keyed_operators();
};

// LibTorch reads zip files by code of its own, which compares no checksums: what it reads must have those of the
// directory, and no byte may lie in two records.
void check_reader_agrees(const std::string& file, const std::vector<ZipRecord>& records) {
  caffe2::serialize::PyTorchStreamReader reader(file);
  bool agrees = reader.getAllRecords().size() == records.size();
  std::map<std::size_t, std::size_t> ends;
  std::vector<std::byte> bytes;  // of one record after the other
  for (const ZipRecord& record : records) {
    agrees = agrees && reader.hasRecord(record.name);
    if (!agrees) throw std::runtime_error("LibTorch finds other records in it than its directory has");
    bytes.assign(reader.getRecordSize(record.name), std::byte{0x5a});
    reader.getRecord(record.name, bytes.data(), bytes.size());
    if (bytes.size() != record.bytes || checksum_of(bytes) != record.checksum)
      throw std::runtime_error("its record " + record.name + " is damaged: it is not what the directory says");
    const std::size_t begin = reader.getRecordOffset(record.name);
    std::size_t& end = ends[begin];
    end = std::max(end, begin + static_cast<std::size_t>(record.packed_bytes));
  }
  std::size_t before = 0;
  for (const auto& [begin, end] : ends) {
    if (begin < before) throw std::runtime_error("its records overlap");
    before = end;
  }
}

Loaded load(const std::string& file) {
  if (!std::filesystem::is_regular_file(file))
    throw UserError("model.path = \"" + file +
                    "\" is no file: write the path of a module saved by torch.jit.script(model).save(path)");
  check_once(file, [&] { check_reader_agrees(file, check_script_archive(file)); });
  torch::jit::ExtraFilesMap extra = {{k_non_persistent_file, ""}};
  Loaded loaded{torch::jit::load(file, c10::Device(c10::kCPU), extra), {}};
  std::istringstream lines(extra.at(k_non_persistent_file));
  for (std::string line; std::getline(lines, line);) loaded.non_persistent.insert(line);
  return loaded;
}

std::unique_ptr<Model> load_model(const TorchScriptRequest& request) {
  const std::string& file = request.file;
  keep_operators_visible();
  Loaded loaded = load(file);
  const torch::jit::Module& module = loaded.module;
  ask_before_refusing_single_values(module);
  if (!module.find_method("forward")) throw UserError(file + ": the module has no forward method");
  if (!module.hasattr("training") || module.parameters().size() == 0) {
    throw UserError(file +
                    ": the module was saved for inference only (torch.jit.freeze or optimize_for_inference made its "
                    "parameters constants): save torch.jit.script(model) of the model in training");
  }
  bool trains = false;
  for (const at::Tensor& parameter : module.parameters()) trains = trains || parameter.requires_grad();
  if (!trains)
    throw UserError(
        file +
        ": no parameter of the module requires a gradient: call requires_grad_() on those to train before saving it");
  return std::make_unique<TorchScriptModel>(std::move(loaded), request);
}

}  // namespace

std::unique_ptr<Model> load_torchscript(const TorchScriptRequest& request) {
  try {
    return load_model(request);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {  // LibTorch throws many kinds, some when it first looks at a part of the file
    if (is_out_of_memory(error)) throw;
    throw UserError("model.path = \"" + request.file + "\" cannot be read as TorchScript (" + first_line(error) +
                    "): save it in Python by torch.jit.script(model).save(path), or copy it anew");
  }
}

ModelKind torchscript_kind() {
  ModelKind kind;
  kind.name = "torchscript";
  kind.keys = {text_key(
      {"path", Changes::result | Changes::probe,
       "torchscript: a file saved in Python by `torch.jit.script(model).save(path)` or `torch.jit.trace`; its "
       "forward takes the data's inputs and returns the outputs, with the classes last (or second, as "
       "PyTorch's cross-entropy takes them). A module that was frozen for inference is refused. exported: a file saved "
       "by `torch.export.save`, which holds no code; see [from Python](from_python.md). plugin: a shared object that "
       "brings a C++ module; see [models as plugins](extending.md#a-model-as-a-plugin)"},
      &ModelConfiguration::path)};
  kind.check = [](const ModelConfiguration& model, const CheckRequest& request) {
    if (model.path.empty())
      request.complain(
          "path",
          "is needed for model.kind = \"torchscript\": a file saved in Python by torch.jit.script(model).save(path)");
  };
  kind.make = [](const ModelRequest& request) {
    return load_torchscript({request.configuration.path, request.freeze_batch_norm, request.returns_loss});
  };
  kind.notice = [](const ModelConfiguration& model) {
    return model.path + " is TorchScript: it is code, and runs with your rights";
  };
  return kind;
}

}  // namespace onebatch
