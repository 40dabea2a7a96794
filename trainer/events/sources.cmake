target_sources(onebatch_pure PRIVATE events/step_writer.cpp events/timeline.cpp)
