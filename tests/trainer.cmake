onebatch_add_test(NAME trainer_test
  SOURCES trainer/accumulation_test.cpp trainer/memory_budget_test.cpp trainer/flat_gradients_test.cpp trainer/layout_test.cpp trainer/statistics_test.cpp trainer/optimizer_test.cpp trainer/loss_test.cpp trainer/models_test.cpp
          trainer/datasets_test.cpp trainer/exported_masks_test.cpp trainer/failed_backward_test.cpp trainer/final_sums_test.cpp trainer/find_batch_size_test.cpp trainer/kept_state_test.cpp trainer/step_graphs_test.cpp trainer/module_kind_test.cpp trainer/noise_kernel_test.cpp trainer/probe_identity_test.cpp trainer/redone_step_test.cpp trainer/reproducible_sum_test.cpp trainer/samples_kind_test.cpp trainer/sample_dropout_test.cpp trainer/turns_test.cpp trainer/weight_sum_test.cpp
  LIBRARIES onebatch_trainer LibTorch::CPU)
target_compile_definitions(trainer_test PRIVATE ONEBATCH_DIGITS="${PROJECT_SOURCE_DIR}/data/digits")

onebatch_add_test(NAME start_weights_test SOURCES trainer/start_weights_test.cpp LIBRARIES onebatch_trainer LibTorch::CPU)
onebatch_add_test(NAME late_figures_test SOURCES trainer/late_figures_test.cpp LIBRARIES onebatch_trainer LibTorch::CPU)
onebatch_add_test(NAME host_copy_test SOURCES trainer/host_copy_test.cpp trainer/averaged_weights_test.cpp LIBRARIES onebatch_trainer LibTorch::CPU)
onebatch_add_test(NAME types_test SOURCES trainer/run_type_test.cpp trainer/whole_numbers_test.cpp LIBRARIES onebatch_trainer LibTorch::CPU)
onebatch_add_test(NAME matrix_products_test SOURCES trainer/matrix_products_test.cpp trainer/native_failure_test.cpp trainer/row_sums_test.cpp LIBRARIES onebatch_trainer LibTorch::CPU)

# Traces are Python's to make; without one these tests are skipped, and counted.
set(traced_models "${CMAKE_CURRENT_BINARY_DIR}/traced")
add_test(NAME traced_models COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/oracle/run.sh ${PROJECT_SOURCE_DIR}/.deps/python/bin/python ${CMAKE_CURRENT_SOURCE_DIR}/oracle/make_traced.py ${traced_models})
set_tests_properties(traced_models PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77 FIXTURES_SETUP traced)
add_executable(torchscript_test trainer/script_graph_test.cpp trainer/script_memory_test.cpp trainer/keyed_recurrent_test.cpp)
target_link_libraries(torchscript_test PRIVATE onebatch_settings onebatch_trainer LibTorch::CPU GTest::gmock GTest::gmock_main)
target_compile_definitions(torchscript_test PRIVATE ONEBATCH_TRACED="${traced_models}")
gtest_discover_tests(torchscript_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120 FIXTURES_REQUIRED traced)
onebatch_add_test(NAME verify_test SOURCES trainer/verify_test.cpp LIBRARIES onebatch_trainer LibTorch::CPU)

onebatch_add_test(NAME reducer_test SOURCES trainer/reducer_test.cpp LIBRARIES onebatch_ranks_main onebatch_trainer LibTorch::CPU RANKS 1 2 3 4)
target_include_directories(reducer_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(reducer_test PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")

onebatch_add_test(NAME graph_step_test SOURCES trainer/graph_step_test.cpp trainer/round_graphs_test.cpp trainer/running_statistics_test.cpp LIBRARIES onebatch_ranks_main onebatch_trainer LibTorch::CPU RANKS 1 2 3 4)
target_include_directories(graph_step_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(graph_step_test PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")

onebatch_add_test(NAME own_parts_test SOURCES trainer/own_parts_test.cpp LIBRARIES onebatch_ranks_main onebatch_trainer LibTorch::CPU RANKS 1 2 3)
target_include_directories(own_parts_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(own_parts_test PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")
