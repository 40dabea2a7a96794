// The commands that need no configuration: what is here, and how fast it reduces.
#pragma once

#include "comm/world.hpp"

#include <string>

namespace onebatch::launch {

/// Prints what was built and what is here; returns it as a document on rank 0, and nothing on the others.
std::string describe_host(const comm::World& world);

/// Measures and prints all-reduces of up to `most_bytes`; returns the document. Collective.
std::string bench_all_reduce(double most_bytes, comm::World& world);

/// Says so where mpirun has bound each of one or two ranks to one core, as it does unless told otherwise.
void warn_of_binding(const comm::World& world);

}  // namespace onebatch::launch
