target_sources(onebatch_pure PRIVATE probe/search.cpp probe/timing.cpp)
target_sources(onebatch_trainer PRIVATE probe/rank_probe.cpp)
