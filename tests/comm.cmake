onebatch_add_test(NAME comm_unit_test SOURCES unit/launcher_test.cpp unit/visible_text_test.cpp unit/datagram_test.cpp unit/device_binding_test.cpp unit/half_test.cpp unit/interfaces_test.cpp unit/statistics_test.cpp unit/survivor_vote_test.cpp LIBRARIES onebatch_comm)

onebatch_add_test(NAME node_reducer_test SOURCES comm/node_reducer_test.cpp comm/collective_queue_test.cpp comm/incident_test.cpp comm/watchdog_test.cpp LIBRARIES onebatch_comm)

# A main that starts the world, prints each failure once with its rank and fails where any rank did.
add_library(onebatch_ranks_main STATIC comm/ranks_main.cpp)
target_link_libraries(onebatch_ranks_main PRIVATE onebatch_settings PUBLIC onebatch_comm GTest::gtest)
onebatch_add_test(NAME communicator_test SOURCES comm/communicator_test.cpp LIBRARIES onebatch_ranks_main MPI::MPI_CXX RANKS 1 2 3 4)

# Programs that die on purpose, and what the launcher and the other ranks make of it.
add_executable(dying_ranks comm/dying_ranks.cpp)
target_link_libraries(dying_ranks PRIVATE onebatch_settings onebatch_comm)
add_test(NAME dying_ranks COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/comm/dying_ranks_test.py $<TARGET_FILE:dying_ranks>)
set_tests_properties(dying_ranks PROPERTIES TIMEOUT 180 PROCESSORS 2 LABELS "ranks;faults")

if(ONEBATCH_CUDA)
  # The NCCL class on host memory: the same source, linked with doubles of what it calls.
  add_executable(nccl_double_test comm/nccl_double_test.cpp comm/nccl_double.cpp ${PROJECT_SOURCE_DIR}/comm/nccl_communicator.cpp)
  get_target_property(nccl_includes LibTorch::nccl INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(nccl_double_test SYSTEM PRIVATE ${nccl_includes})
  target_link_libraries(nccl_double_test PRIVATE onebatch_settings onebatch_ranks_main MPI::MPI_CXX)
  foreach(ranks 2 3 4)   # a world of one has nobody to communicate with and never asks NCCL
    add_test(NAME nccl_double_test.ranks_${ranks} COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none -np ${ranks} $<TARGET_FILE:nccl_double_test>)
    set_tests_properties(nccl_double_test.ranks_${ranks} PROPERTIES TIMEOUT 120 PROCESSORS 2 LABELS ranks
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_mpi_yield_when_idle=1")
  endforeach()
endif()
