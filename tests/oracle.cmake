# Equality against PyTorch in Python, in one batch, on the same weights and the same samples.
set(oracle_python "${PROJECT_SOURCE_DIR}/.deps/python/bin/python")
foreach(oracle gradient_oracle batch_norm_oracle buffers_oracle weights_oracle precision_oracle training_oracle safetensors_oracle modes_oracle tensors_oracle keyed_layers_oracle script_memory_oracle example_test deceivers shapes_oracle watched_models_test layout_oracle small_batches_oracle loss_scale_oracle channels_last_oracle exported_oracle check_oracle export_oracle trained_weights_oracle)
  add_test(NAME ${oracle} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/oracle/run.sh ${oracle_python} ${CMAKE_CURRENT_SOURCE_DIR}/oracle/${oracle}.py $<TARGET_FILE:onebatch>
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${oracle} PROPERTIES TIMEOUT 1200 SKIP_RETURN_CODE 77 LABELS oracle)
endforeach()
# Random models, plans and configurations, as many as 1.5 minutes allow.
add_test(NAME random_runs COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/oracle/run.sh ${oracle_python} ${CMAKE_CURRENT_SOURCE_DIR}/oracle/random_runs.py $<TARGET_FILE:onebatch>
         --cases 200 --minutes 1.5 --jobs 2 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(random_runs PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 LABELS oracle)
# Archives that are damaged or forged, some hundred; by hand, any number.
add_executable(load_archives oracle/load_archives.cpp)
target_link_libraries(load_archives PRIVATE onebatch_settings onebatch_trainer LibTorch::CPU)
set_target_properties(load_archives PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")
add_test(NAME mutated_archives COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/oracle/run.sh ${oracle_python} ${CMAKE_CURRENT_SOURCE_DIR}/oracle/mutated_archives.py $<TARGET_FILE:onebatch> $<TARGET_FILE:load_archives>
         WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(mutated_archives PROPERTIES TIMEOUT 400 SKIP_RETURN_CODE 77 LABELS oracle)
add_test(NAME mutated_programs COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/oracle/run.sh ${oracle_python} ${CMAKE_CURRENT_SOURCE_DIR}/oracle/mutated_programs.py $<TARGET_FILE:load_archives>
         WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(mutated_programs PROPERTIES TIMEOUT 400 SKIP_RETURN_CODE 77 LABELS oracle)
foreach(part unfit_samples init_models)
  onebatch_add_pytest(${part} oracle/${part}_test.py LABELS oracle TIMEOUT 200 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch>)
endforeach()
