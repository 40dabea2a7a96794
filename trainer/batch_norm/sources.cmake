target_sources(onebatch_trainer PRIVATE batch_norm/host_passes.cpp batch_norm/running_statistics.cpp batch_norm/shared_norms.cpp batch_norm/statistics.cpp)
