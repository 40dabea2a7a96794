# Image files, against PIL and torchvision.
add_executable(image_tool oracle/image_tool.cpp)
target_link_libraries(image_tool PRIVATE onebatch_settings onebatch_pure)
onebatch_add_pytest(images_oracle oracle/images_test.py LABELS oracle TIMEOUT 600 PROCESSORS 1)
onebatch_add_pytest(images_cli cli/images_test.py LABELS cli TIMEOUT 400 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch>)
onebatch_add_pytest(resumed_images cli/resumed_images_test.py LABELS cli TIMEOUT 400 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch>)
onebatch_add_pytest(pipes cli/pipes_test.py LABELS cli TIMEOUT 400 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch>)

onebatch_add_test(NAME image_dataset_test SOURCES trainer/image_dataset_test.cpp LIBRARIES onebatch_trainer LibTorch::CPU)
target_compile_definitions(image_dataset_test PRIVATE ONEBATCH_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus")
