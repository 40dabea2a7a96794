target_sources(onebatch_pure PRIVATE documents/documents.cpp documents/read_documents.cpp)
