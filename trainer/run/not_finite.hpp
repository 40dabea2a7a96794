// Where numbers stop being finite.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/replica/replica.hpp"

#include <string>

namespace onebatch {

/// In words, of a step whose gradient holds an infinity or NaN: a parameter that does, else a sample whose data hold a
/// NaN, else the first operator of this rank's forwards that makes one ("aten::linear, after layer2"), else the
/// parameter whose gradient the backward got wrong first. The same on every rank, by the first rank that finds
/// something. Collective.
std::string first_not_finite(Replica& replica, const Dataset& data, std::span<const std::int64_t> samples,
                             const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                             comm::Communicator& control);

/// Parameters and running statistics, on all ranks; other buffers may hold an infinity, as masks do. Collective.
bool has_finite_weights(const Replica& replica, comm::Communicator& control);
/// Whether what is trained is finite on all ranks, whatever becomes of running statistics. Collective.
bool trains_on_numbers(const Replica& replica, comm::Communicator& control);

}  // namespace onebatch
