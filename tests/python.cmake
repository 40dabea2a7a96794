# The package for Python, against PyTorch and the program.
foreach(part datasets checkpoints exporting other_programs checking accumulating announcing compiling compile_command compiled_by_run compiled_batch_norm compiled_code compiled_evaluation compiled_recomputing recomputing compile_failures indices converting converting_classes converting_sources example_configs)
  onebatch_add_pytest(python_${part} python/${part}_test.py LABELS python TIMEOUT 200 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch> --faulty-program $<TARGET_FILE:faulty_onebatch>)
endforeach()
set_tests_properties(python_converting PROPERTIES TIMEOUT 400)  # processes that start PyTorch
set_tests_properties(python_compiling python_compile_command python_compiled_by_run python_compiled_batch_norm python_compiled_code python_compiled_evaluation python_compiled_recomputing python_recomputing python_indices PROPERTIES TIMEOUT 900)  # a compiler, several times
if(LibTorch_VERSION VERSION_LESS 2.8)  # it runs no compiled programs
  set_tests_properties(python_accumulating python_announcing python_compiling python_compile_command python_compiled_by_run python_compiled_batch_norm python_compiled_code python_compiled_evaluation python_compiled_recomputing python_recomputing python_compile_failures python_indices PROPERTIES DISABLED TRUE)
endif()
set_tests_properties(python_example_configs PROPERTIES TIMEOUT 400)
# In a bare environment: python/pack.sh packs this build.
onebatch_add_pytest(python_wheel python/wheel_test.py LABELS python package TIMEOUT 180 PROCESSORS 1 ARGUMENTS --build "${PROJECT_BINARY_DIR}")
