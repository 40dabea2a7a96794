target_sources(onebatch_pure PRIVATE events/csv_writer.cpp events/event_json.cpp events/event_stream.cpp events/step_writer.cpp events/tensorboard_writer.cpp events/timeline.cpp)
target_sources(onebatch_trainer PRIVATE events/own_fallback.cpp)
