onebatch_add_kinds(onebatch_pure optim ScheduleKind constant_schedule linear_schedule cosine_schedule step_schedule)
onebatch_add_kinds(onebatch_trainer optim OptimizerKind adamw adam sgd)
target_sources(onebatch_pure PRIVATE optim/pace.cpp optim/schedule.cpp)
target_sources(onebatch_trainer PRIVATE optim/optimizer.cpp optim/weight_average.cpp)
