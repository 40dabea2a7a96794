onebatch_add_test(NAME trainer_test
  SOURCES trainer/accumulation_test.cpp trainer/memory_budget_test.cpp trainer/flat_gradients_test.cpp trainer/optimizer_test.cpp trainer/loss_test.cpp trainer/models_test.cpp
          trainer/datasets_test.cpp trainer/failed_backward_test.cpp trainer/find_batch_size_test.cpp trainer/redone_step_test.cpp trainer/reproducible_sum_test.cpp trainer/sample_dropout_test.cpp
  LIBRARIES onebatch_trainer LibTorch::CPU)
target_compile_definitions(trainer_test PRIVATE ONEBATCH_DIGITS="${PROJECT_SOURCE_DIR}/data/digits")

onebatch_add_test(NAME reducer_test SOURCES trainer/reducer_test.cpp LIBRARIES onebatch_ranks_main onebatch_trainer LibTorch::CPU RANKS 1 2 3 4)
target_include_directories(reducer_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(reducer_test PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")

onebatch_add_test(NAME graph_step_test SOURCES trainer/graph_step_test.cpp trainer/running_statistics_test.cpp LIBRARIES onebatch_ranks_main onebatch_trainer LibTorch::CPU RANKS 1 2 3 4)
target_include_directories(graph_step_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(graph_step_test PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")
