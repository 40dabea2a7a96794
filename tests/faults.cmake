# The program with a rank that fails on request, in every way and at every point.
add_executable(faulty_onebatch ${PROJECT_SOURCE_DIR}/launch/main.cpp faults/faulty_rank.cpp)
target_link_libraries(faulty_onebatch PRIVATE onebatch_settings onebatch_launch)
set_target_properties(faulty_onebatch PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")
add_test(NAME faults COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/faults/faults_test.py $<TARGET_FILE:faulty_onebatch>)
set_tests_properties(faults PROPERTIES TIMEOUT 900 PROCESSORS 2 LABELS "ranks;faults")
add_test(NAME faults.memory COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/faults/memory_test.py $<TARGET_FILE:faulty_onebatch>)
set_tests_properties(faults.memory PROPERTIES TIMEOUT 300 PROCESSORS 2 LABELS "ranks;faults")
