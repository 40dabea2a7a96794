target_sources(onebatch_trainer PRIVATE gradients/clipping.cpp gradients/flat_gradients.cpp gradients/loss_scale.cpp gradients/reducer.cpp gradients/reproducible_sum.cpp)
