target_sources(onebatch_trainer PRIVATE gradients/flat_gradients.cpp gradients/reducer.cpp gradients/clipping.cpp gradients/loss_scale.cpp gradients/reproducible_sum.cpp)
