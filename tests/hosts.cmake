# Several hosts on one machine, in network namespaces; skipped, counted, where those are not allowed.
add_test(NAME hosts COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/hosts/hosts_test.py $<TARGET_FILE:onebatch> $<TARGET_FILE:communicator_test>)
set_tests_properties(hosts PROPERTIES TIMEOUT 400 PROCESSORS 1 SKIP_RETURN_CODE 77 LABELS "ranks;faults")
