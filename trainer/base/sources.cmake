target_sources(onebatch_pure PRIVATE base/cost_table.cpp base/metrics.cpp base/name_patterns.cpp)
target_sources(onebatch_trainer PRIVATE base/fault_point.cpp base/transfer.cpp)
