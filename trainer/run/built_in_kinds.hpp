// All kinds that the library has of itself. Free of LibTorch.
#pragma once

namespace onebatch {

/// Makes the built-in models, data formats, losses, optimizers and schedules known: to be called before keys of a
/// configuration are read. May be repeated.
void register_built_in_kinds();

}  // namespace onebatch
