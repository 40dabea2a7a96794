target_sources(onebatch_pure PRIVATE graph/examination.cpp)
target_sources(onebatch_trainer PRIVATE graph/call_facts.cpp graph/capture.cpp graph/examiner.cpp graph/numbering.cpp graph/only_readers.cpp graph/segments.cpp graph/shelf.cpp graph/tape.cpp graph/watched_calls.cpp)
