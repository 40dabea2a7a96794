target_sources(onebatch_pure PRIVATE optim/schedule.cpp)
target_sources(onebatch_trainer PRIVATE optim/optimizer.cpp)
