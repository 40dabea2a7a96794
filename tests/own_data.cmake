# Tokens and tensors of the user's own, against numpy and PyTorch.
add_executable(show_samples oracle/show_samples.cpp)
target_link_libraries(show_samples PRIVATE onebatch_settings onebatch_config onebatch_trainer LibTorch::CPU)
set_target_properties(show_samples PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")
foreach(part tokens pieces shards)
  onebatch_add_pytest(own_${part} oracle/own_${part}_test.py LABELS oracle TIMEOUT 400 PROCESSORS 1
    ARGUMENTS --program $<TARGET_FILE:onebatch> --show-samples $<TARGET_FILE:show_samples>)
endforeach()
onebatch_add_pytest(predict_models oracle/predict_test.py LABELS oracle TIMEOUT 400 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch>)
