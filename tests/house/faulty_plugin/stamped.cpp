// A shared object with a plugin's stamp and no factory; or with one that calls what is nowhere.
#include <onebatch/trainer/models/plugin_stamp.hpp>

#include <torch/version.h>

extern "C" {
extern const onebatch::PluginStamp onebatch_plugin_stamp;
[[gnu::used]] const onebatch::PluginStamp onebatch_plugin_stamp = onebatch::make_plugin_stamp(TORCH_VERSION);

#ifdef CALLS_WHAT_IS_NOWHERE
void nowhere();
void onebatch_make_module() {
  nowhere();
}
#endif
}
