# The program run as a user runs it, mistakes included; Python's standard library alone.
onebatch_add_test(NAME config_loader_test SOURCES unit/config_loader_test.cpp unit/identity_test.cpp unit/kinds_test.cpp unit/nearest_test.cpp unit/run_folder_test.cpp LIBRARIES onebatch_launch)
foreach(part commands mistakes broken_streams log_files control_characters data resume runs plan ranks kept_values bitwise precision probe communication drift)
  add_test(NAME ${part}_cli COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cli/${part}_test.py $<TARGET_FILE:onebatch> WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${part}_cli PROPERTIES TIMEOUT 400 PROCESSORS 2 LABELS cli)
endforeach()
add_executable(noted_onebatch ${PROJECT_SOURCE_DIR}/launch/main.cpp cli/noted_syncs.cpp)
target_link_libraries(noted_onebatch PRIVATE onebatch_settings onebatch_launch)
set_target_properties(noted_onebatch PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")
add_test(NAME durable_cli COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cli/durable_test.py $<TARGET_FILE:noted_onebatch> WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(durable_cli PROPERTIES TIMEOUT 120 LABELS cli)
# Nothing in these depends on time.
set_tests_properties(bitwise_cli precision_cli mistakes_cli broken_streams_cli log_files_cli control_characters_cli data_cli resume_cli runs_cli kept_values_cli PROPERTIES PROCESSORS 1)
