// What a run goes on from, on any ranks: read by rank 0 and sent to all. RunSaver has written it.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/checkpoint/checkpoint_folder.hpp"
#include "trainer/checkpoint/run_state.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/replica/replica.hpp"

namespace onebatch {

/// Rank 0's choice of the checkpoint to go on from: `path` (a step-N folder or a run's folder; empty: the newest whole
/// one below `checkpoints`), checked. Empty where there is none. Torn or altered ones that are passed over are a
/// fallback. Throws AgreedError. Collective.
std::filesystem::path choose_checkpoint(const std::filesystem::path& checkpoints, const std::filesystem::path& path,
                                        EventStream& events, comm::Communicator& control);

/// Throws AgreedError. Collective; only rank 0 reads.
RunState load_run_state(const std::filesystem::path& checkpoint, comm::Communicator& control);
/// Model and optimizer; each rank's own buffers and generators where the world has the size that saved them, else the
/// averaged buffers. Throws AgreedError. Collective.
void load_replica(const std::filesystem::path& checkpoint, Replica& replica, comm::Communicator& control);
/// The model alone, for evaluation.
void load_model(const std::filesystem::path& checkpoint, Replica& replica, comm::Communicator& control);
void load_model(const std::filesystem::path& checkpoint, const Model& model, comm::Communicator& control);

}  // namespace onebatch
