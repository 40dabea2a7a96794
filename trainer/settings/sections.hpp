// What every section has whatever its kind: the one list of keys that is written by hand, in the files *_keys.cpp.
#pragma once

#include "trainer/settings/key.hpp"

namespace onebatch {

template <typename Section>
using KeysOf = std::vector<KeyOf<Section>>;

KeysOf<RunConfiguration> run_keys();
KeysOf<EarlyStopping> early_stopping_keys();
KeysOf<BatchConfiguration> batch_keys();
KeysOf<DatasetConfiguration> dataset_keys();
KeysOf<SamplingConfiguration> sampling_keys();
KeysOf<SamplingConfiguration> split_keys();  // of data.validation
KeysOf<ReadingConfiguration> reading_keys();
KeysOf<AugmentConfiguration> augment_keys();
/// Of data sets that are image files.
KeysOf<AugmentConfiguration> image_augment_keys();
KeysOf<ModelConfiguration> model_keys();
KeysOf<LossConfiguration> loss_keys();
KeysOf<OptimizerConfiguration> optimizer_keys();
KeysOf<ScheduleConfiguration> schedule_keys();
KeysOf<PrecisionConfiguration> precision_keys();
KeysOf<BatchNormConfiguration> batch_norm_keys();
KeysOf<MemoryConfiguration> memory_keys();
KeysOf<ProbeConfiguration> probe_keys();
KeysOf<CommConfiguration> comm_keys();
KeysOf<CheckpointConfiguration> checkpoint_keys();
KeysOf<WatchedMetric> keep_best_keys();
KeysOf<VerifyConfiguration> verify_keys();
KeysOf<LogConfiguration> log_keys();
KeysOf<std::vector<SimulatedDevice>> simulate_keys();

}  // namespace onebatch
