// Which processor cores a launcher has left to a rank.
#pragma once

#include "comm/world.hpp"

#include <string>

namespace onebatch::launch {

/// mpirun binds one or two ranks to one core each unless told otherwise: what to say where it has; empty: nothing.
std::string binding_warning(const comm::World& world);

}  // namespace onebatch::launch
