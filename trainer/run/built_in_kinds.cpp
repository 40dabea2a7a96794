#include "trainer/run/built_in_kinds.hpp"

#include "trainer/data/dataset_kind.hpp"
#include "trainer/models/loss_kind.hpp"
#include "trainer/models/model_kind.hpp"
#include "trainer/optim/optimizer_kind.hpp"
#include "trainer/optim/schedule_kind.hpp"

namespace onebatch {

void register_built_in_kinds() {
  register_built_in<DatasetKind>();
  register_built_in<ModelKind>();
  register_built_in<LossKind>();
  register_built_in<OptimizerKind>();
  register_built_in<ScheduleKind>();
}

}  // namespace onebatch
