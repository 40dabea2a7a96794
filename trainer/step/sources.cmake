target_sources(onebatch_pure PRIVATE step/step_sums.cpp)
target_sources(onebatch_trainer PRIVATE step/accumulation.cpp step/capture_check.cpp step/evaluation.cpp step/graph_step.cpp step/micro_step_graphs.cpp step/padding_check.cpp step/rounds.cpp step/step.cpp step/step_exchange.cpp)
