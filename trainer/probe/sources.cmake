target_sources(onebatch_pure PRIVATE probe/memory_use.cpp probe/probe_cache.cpp probe/search.cpp probe/timing.cpp)
target_sources(onebatch_trainer PRIVATE probe/find_batch_size.cpp probe/probe_identity.cpp probe/rank_probe.cpp probe/size_probe.cpp)
