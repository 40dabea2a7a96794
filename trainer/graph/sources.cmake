target_sources(onebatch_trainer PRIVATE graph/capture.cpp graph/tape.cpp graph/segments.cpp graph/shelf.cpp graph/step_exchange.cpp graph/rounds.cpp graph/capture_check.cpp graph/graph_step.cpp)
