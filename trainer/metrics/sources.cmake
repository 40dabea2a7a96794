target_sources(onebatch_pure PRIVATE metrics/step_writer.cpp metrics/timeline.cpp)
