target_sources(onebatch_trainer PRIVATE replica/called_from.cpp replica/examine.cpp replica/output_check.cpp replica/replica.cpp replica/replica_check.cpp replica/replica_state.cpp)
