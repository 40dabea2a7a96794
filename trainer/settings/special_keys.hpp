// Keys whose values are of a form of their own.
#pragma once

#include "trainer/settings/key_types.hpp"

namespace onebatch {

KeyOf<RunConfiguration> deterministic_key(KeyText about);
KeyOf<RunConfiguration> cuda_graphs_key(KeyText about);
/// A list of metrics' names.
KeyOf<RunConfiguration> metrics_key(KeyText about);
KeyOf<PrecisionConfiguration> loss_scale_key(KeyText about);
KeyOf<BatchConfiguration> micro_batch_key(KeyText about);
KeyOf<CheckpointConfiguration> resume_key(KeyText about);
KeyOf<OptimizerConfiguration> groups_key(KeyText about);
/// A list of patterns of names, which may be empty.
KeyOf<ModelConfiguration> patterns_key(KeyText about, std::vector<std::string> ModelConfiguration::*field);
/// A text that ends in a dot, or is empty.
KeyOf<ModelConfiguration> prefix_key(KeyText about, std::string ModelConfiguration::*field);
KeyOf<CommConfiguration> overlap_key(KeyText about);
KeyOf<PrecisionConfiguration> channels_last_key(KeyText about);
/// The name that others give to batch_norm.mode = "sync".
KeyOf<BatchNormConfiguration> sync_key(KeyText about);
KeyOf<MemoryConfiguration> recompute_key(KeyText about);
KeyOf<std::vector<SimulatedDevice>> devices_key(KeyText about);
KeyOf<LogConfiguration> sinks_key(KeyText about);

}  // namespace onebatch
