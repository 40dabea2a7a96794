# The program run as a user runs it, mistakes included.
onebatch_add_test(NAME config_loader_test SOURCES unit/config_loader_test.cpp unit/identity_test.cpp unit/kinds_test.cpp unit/line_process_test.cpp unit/live_line_test.cpp unit/nearest_test.cpp unit/run_folder_test.cpp unit/signals_test.cpp unit/run_lock_test.cpp LIBRARIES onebatch_launch)
onebatch_add_test(NAME doctor_test SOURCES unit/doctor_test.cpp LIBRARIES onebatch_launch)
foreach(part probe drift)  # they measure
  onebatch_add_pytest(${part}_cli cli/${part}_test.py LABELS cli TIMEOUT 400 PROCESSORS 2 ARGUMENTS --program $<TARGET_FILE:onebatch>)
endforeach()
foreach(part commands ranks plan communication launch doctor watching metrics predict report mistakes broken_streams log_files outputs sinks control_characters data older resume going_back best runs kept_values bitwise
        precision init shell)
  onebatch_add_pytest(${part}_cli cli/${part}_test.py LABELS cli TIMEOUT 400 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch>)
endforeach()
add_executable(noted_onebatch ${PROJECT_SOURCE_DIR}/launch/main.cpp cli/noted_syncs.cpp)
target_link_libraries(noted_onebatch PRIVATE onebatch_settings onebatch_launch onebatch_malloc)
set_target_properties(noted_onebatch PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")
onebatch_add_pytest(durable_cli cli/durable_test.py LABELS cli TIMEOUT 120 PROCESSORS 1 ARGUMENTS --noted-program $<TARGET_FILE:noted_onebatch>)
