// What a plugin includes, a shared object that brings a model: #include <onebatch/plugin.hpp>, a factory, and one line
// ONEBATCH_PLUGIN(factory). model.kind = "plugin", model.path = "libmine.so". Headers of onebatch and LibTorch alone:
// nothing of onebatch is linked.
#pragma once

#include "trainer/models/callable_module.hpp"
#include "trainer/models/plugin_request.hpp"
#include "trainer/models/plugin_stamp.hpp"

#include <torch/version.h>

/// `factory`: called with an onebatch::PluginRequest, it returns a torch::nn::Module by std::shared_ptr, or a holder of
/// one. On the CPU; called several times in a run, and to make the same module each time.
#define ONEBATCH_PLUGIN(factory)                                                                                \
  extern "C" {                                                                                                  \
  [[gnu::visibility("default")]] extern const onebatch::PluginStamp onebatch_plugin_stamp;                      \
  [[gnu::used]] const onebatch::PluginStamp onebatch_plugin_stamp = onebatch::make_plugin_stamp(TORCH_VERSION); \
  [[gnu::visibility("default")]] void onebatch_make_module(const onebatch::PluginRequest& request,              \
                                                           onebatch::CallableModule& made) {                    \
    made = factory(request);                                                                                    \
  }                                                                                                             \
  }                                                                                                             \
  static_assert(true, "a line that ends with a semicolon")
