# Which samples take part, and what data are.
onebatch_add_test(NAME samples_test SOURCES trainer/run_data_test.cpp LIBRARIES onebatch_trainer LibTorch::CPU)
target_compile_definitions(samples_test PRIVATE ONEBATCH_DIGITS="${PROJECT_SOURCE_DIR}/data/digits")
onebatch_add_pytest(sampling_cli cli/sampling_test.py LABELS cli TIMEOUT 600 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch>)
onebatch_add_pytest(data_command_cli cli/data_command_test.py LABELS cli TIMEOUT 200 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch>)
