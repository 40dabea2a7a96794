onebatch_add_test(NAME data_test
  SOURCES unit/allocator_settings_test.cpp unit/topology_test.cpp unit/sample_order_test.cpp unit/selection_test.cpp unit/idx_test.cpp unit/safetensors_test.cpp unit/background_save_test.cpp unit/checkpoint_contents_test.cpp unit/checkpoint_folder_test.cpp unit/run_state_test.cpp unit/examination_test.cpp unit/step_writer_test.cpp unit/event_stream_test.cpp unit/step_sums_test.cpp unit/source_places_test.cpp unit/checked_files_test.cpp unit/plugin_file_test.cpp unit/zip_records_test.cpp unit/name_patterns_test.cpp unit/metrics_test.cpp unit/token_files_test.cpp
  LIBRARIES onebatch_pure ZLIB::ZLIB nlohmann_json::nlohmann_json)
target_compile_definitions(data_test PRIVATE ONEBATCH_DIGITS="${PROJECT_SOURCE_DIR}/data/digits")
