target_sources(onebatch_pure PRIVATE documents/documents.cpp documents/verify_svg.cpp io/json_reader.cpp documents/read_documents.cpp)
