// Kinds that make nothing, under the names of those that need LibTorch, with keys of every type of value.
#include "tests/fuzz/config_check.hpp"
#include "trainer/settings/key_types.hpp"
#include "trainer/settings/kinds.hpp"

namespace onebatch::fuzz {
namespace {

KeyText undocumented(const char* name) {
  return {name, Changes::nothing, ""};
}

template <typename Section>
void stand_in(const std::string& name, std::vector<KeyOf<Section>> keys) {
  auto kind = std::make_shared<Kind<Section>>();
  kind->name = name;
  kind->keys = std::move(keys);
  add_kind<Section>(kind);
}

}  // namespace

void register_kinds() {
  using D = DatasetConfiguration;
  using M = ModelConfiguration;
  using O = OptimizerConfiguration;
  using S = ScheduleConfiguration;
  stand_in<D>("idx", {});
  stand_in<D>("safetensors",
              {names_key(undocumented("inputs"), &D::inputs), text_key(undocumented("target"), &D::target)});
  stand_in<D>("synthetic", {integers_key(undocumented("shape"), 1, &D::shape),
                            integer_key(undocumented("size"), 1, k_any, &D::size)});
  stand_in<M>("mlp", {integers_key(undocumented("hidden"), 1, &M::hidden),
                      number_key(undocumented("dropout"), {0.0, 0.999}, &M::dropout)});
  stand_in<M>("resnet", {integer_key(undocumented("depth"), 8, 1202, &M::depth),
                         choice_key(undocumented("stem"),
                                    {{"imagenet", ResNetStem::imagenet}, {"cifar", ResNetStem::cifar}}, &M::stem)});
  for (const char* name : {"cross_entropy", "mse", "model"}) stand_in<LossConfiguration>(name, {});
  stand_in<O>("adamw", {numbers_key(undocumented("betas"), {0.0, 0.9999999}, &O::betas)});
  stand_in<O>("sgd", {number_key(undocumented("momentum"), {0.0, 1.0}, &O::momentum),
                      boolean_key(undocumented("nesterov"), &O::nesterov)});
  for (const char* name : {"constant", "cosine"}) stand_in<S>(name, {});
  stand_in<S>("step", {number_key(undocumented("gamma"), {0.0, 1.0}, Option<S, double>{"gamma", 0.1})});
}

}  // namespace onebatch::fuzz
