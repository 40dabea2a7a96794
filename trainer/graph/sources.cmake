target_sources(onebatch_pure PRIVATE graph/examination.cpp)
target_sources(onebatch_trainer PRIVATE graph/call_facts.cpp replica/examine.cpp graph/examiner.cpp graph/numbering.cpp graph/capture.cpp graph/tape.cpp graph/watched_calls.cpp graph/segments.cpp graph/shelf.cpp step/step_exchange.cpp step/rounds.cpp step/capture_check.cpp step/graph_step.cpp)
