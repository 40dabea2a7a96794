# How training samples are read.
onebatch_add_test(NAME loader_test SOURCES trainer/loader_test.cpp trainer/loading_step_test.cpp LIBRARIES onebatch_trainer LibTorch::CPU)
onebatch_add_pytest(loading cli/loading_test.py LABELS ranks TIMEOUT 600 PROCESSORS 2
  ARGUMENTS --program $<TARGET_FILE:onebatch> --faulty-program $<TARGET_FILE:faulty_onebatch>)

# A step's figures, read when the next was begun.
onebatch_add_pytest(late_figures cli/late_figures_test.py LABELS ranks TIMEOUT 300 PROCESSORS 2
  ARGUMENTS --program $<TARGET_FILE:onebatch> --faulty-program $<TARGET_FILE:faulty_onebatch>)
