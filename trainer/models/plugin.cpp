// A model from a shared object: model.kind = "plugin". Its side of this is trainer/plugin.hpp.
#include "trainer/base/error.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/models/module_kind.hpp"
#include "trainer/models/plugin_file.hpp"
#include "trainer/models/plugin_request.hpp"
#include "trainer/settings/key_types.hpp"

#include <dlfcn.h>
#include <torch/version.h>

#include <filesystem>

namespace onebatch {
namespace {

constexpr PluginStamp k_this_program = make_plugin_stamp(TORCH_VERSION);

const Option<ModelConfiguration, std::string> k_options{"options", ""};

using MakeModule = void (*)(const PluginRequest&, CallableModule&);

std::string named(const std::string& file) {
  return "model.path = \"" + file + "\"";
}

std::string loaders_words() {
  const char* words = dlerror();
  return words != nullptr ? words : "the loader says nothing";
}

// It stays: what it made may outlive any handle.
MakeModule load(const std::string& file) {
  check_plugin_file(file, named(file), k_this_program);
  const std::string place = std::filesystem::absolute(file).string();  // without a "/" the loader would search for it
  void* const handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr)
    throw UserError(named(file) + " cannot be loaded (" + loaders_words() +
                    "): write the path of a shared object that was built against this onebatch");
  void* const make = dlsym(handle, "onebatch_make_module");
  if (make == nullptr)
    throw UserError(named(file) + " has no factory (" + loaders_words() +
                    "): write ONEBATCH_PLUGIN(your_factory) in one of its files, and keep its symbols");
  return reinterpret_cast<MakeModule>(make);
}

CallableModule call_factory(MakeModule make, const ModelRequest& request, const std::string& file) {
  CallableModule made;
  std::string words;
  try {
    make({.sample_shape = request.sample_shape,
          .num_classes = classes_of(request),
          .options = k_options(request.configuration),
          .seed = request.seed},
         made);
    return made;
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;
    words = error.what();
    words.resize(std::min(words.size(), words.find('\n')));  // LibTorch sets stacks behind them
  } catch (...) {
    words = "what is no std::exception";
  }
  throw UserError(named(file) + ": its factory throws: " + words);
}

}  // namespace

ModelKind plugin_kind() {
  ModelKind kind;
  kind.name = "plugin";
  kind.shares = {"path"};
  kind.keys = {text_key({"options", Changes::result | Changes::probe | Changes::run,
                         "plugin: a text that its factory is given, which means what the plugin says"},
                        k_options)};
  kind.check = [](const ModelConfiguration& model, const CheckRequest& request) {
    if (model.path.empty())
      request.complain("path",
                       "is needed for model.kind = \"plugin\": a shared object that was built against this onebatch");
  };
  kind.make = [](const ModelRequest& request) {
    const std::string& file = request.configuration.path;
    return wrap_module(call_factory(load(file), request, file), request, named(file));
  };
  kind.notice = [](const ModelConfiguration& model) {
    return model.path + " is a plugin: it is code, and runs with your rights";
  };
  return kind;
}

}  // namespace onebatch
