// Trains a small network on the digits in data/digits without the program and without a configuration file.
//   mpirun -np 2 --bind-to none train_digits path/to/data/digits
#include <onebatch/trainer.hpp>

#include <cstdio>

namespace {

struct Printer : onebatch::Observer {
  void validated(std::int64_t epoch, const onebatch::EvaluationResult& result) override {
    std::printf("epoch %lld: validation loss %.4f, accuracy %.1f %%\n", static_cast<long long>(epoch), result.loss,
                result.accuracy.value_or(0.0) * 100.0);
  }
};

onebatch::Configuration digits(const char* path) {
  onebatch::Configuration configuration;
  configuration.run.epochs = 2;
  configuration.batch.global_batch_size = 100;  // over all ranks, whatever their number
  configuration.data.train.path = path;
  configuration.data.validation = configuration.data.train;
  configuration.model.hidden = {64};
  return configuration;
}

}  // namespace

int main(int argc, char** argv) {
  const auto world = onebatch::comm::World::create();
  Printer printer;
  onebatch::Session session(digits(argc > 1 ? argv[1] : "data/digits"), *world, printer, {});
  const auto result = session.train();
  if (world->rank() == 0) std::printf("%lld steps\n", static_cast<long long>(result.steps));
  world->close();
}
