# target_sources(onebatch_pure PRIVATE ...) for what needs no LibTorch, target_sources(onebatch_trainer PRIVATE ...) for the rest
target_sources(onebatch_pure PRIVATE plan/cost_table.cpp)
