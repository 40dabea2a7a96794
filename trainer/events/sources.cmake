target_sources(onebatch_pure PRIVATE events/event_stream.cpp events/step_writer.cpp events/timeline.cpp)
target_sources(onebatch_trainer PRIVATE events/own_fallback.cpp)
