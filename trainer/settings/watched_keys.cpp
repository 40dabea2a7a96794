// What is done with a number of the validation: which checkpoint stays, and when a run ends before its time.
#include "trainer/settings/key_types.hpp"
#include "trainer/settings/sections.hpp"

namespace onebatch {
namespace {

KeyOf<WatchedMetric> better_key(KeyText about) {
  return choice_key(std::move(about),
                    {{"auto", BetterIs::automatic}, {"min", BetterIs::least}, {"max", BetterIs::greatest}},
                    &WatchedMetric::better);
}

KeyOf<EarlyStopping> of_early_stopping(KeyOf<WatchedMetric> key) {
  return {std::move(key.about), std::move(key.values),
          [read = std::move(key.read)](const ConfigValue& value, EarlyStopping& early) {
            return read(value, early.watched);
          },
          [show = std::move(key.show)](const EarlyStopping& early) { return show(early.watched); }};
}

}  // namespace

KeysOf<WatchedMetric> keep_best_keys() {
  return {text_key({"metric", Changes::nothing,
                    "`\"loss\"`, `\"accuracy\"` or another number of the validation: the checkpoint of the best one "
                    "stays, as `checkpoints/best`; see [which weights a run leaves](best_and_last.md#the-best)",
                    "none"},
                   &WatchedMetric::metric),
          better_key({"mode", Changes::nothing,
                      "whether less (`\"min\"`) or more (`\"max\"`) is better; `\"auto\"` knows it by the metric"})};
}

KeysOf<EarlyStopping> early_stopping_keys() {
  return {
      of_early_stopping(text_key({"metric", Changes::result,
                                  "a number of the validation, as for `checkpoint.keep_best`: the run [ends when it "
                                  "gets no better](best_and_last.md#when-it-gets-no-better)",
                                  "none"},
                                 &WatchedMetric::metric)),
      of_early_stopping(better_key({"mode", Changes::result, "as for `checkpoint.keep_best`"})),
      integer_key({"patience", Changes::result, "after so many validations in a row that were no better"}, 1, k_any,
                  &EarlyStopping::patience),
      number_key({"min_delta", Changes::result, "what is better by no more than this is no better"}, {0.0},
                 &EarlyStopping::min_delta)};
}

}  // namespace onebatch
