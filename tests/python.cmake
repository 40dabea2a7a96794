# The package for Python, against PyTorch and the program.
foreach(part datasets checkpoints exporting checking)
  onebatch_add_pytest(python_${part} python/${part}_test.py LABELS python TIMEOUT 200 PROCESSORS 1 ARGUMENTS --program $<TARGET_FILE:onebatch>)
endforeach()
