// Trains a small network on the digits in data/digits without the program and without a configuration file.
//   mpirun -np 2 --bind-to none train_digits path/to/data/digits
#include <onebatch/trainer.hpp>

#include <cstdio>

namespace {

// Heard on rank 0, as every event of a run.
void print(const onebatch::event::Validated& validated) {
  std::printf("epoch %lld: validation loss %.4f, accuracy %.1f %%\n", static_cast<long long>(validated.epoch),
              validated.result.loss, validated.result.accuracy.value_or(0.0) * 100.0);
}

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
  const auto print_end = [](const onebatch::event::Ended& ended) {
    std::printf("%lld steps\n", static_cast<long long>(ended.result.steps));
  };
  const std::vector<onebatch::Listener> listeners = {onebatch::on<onebatch::event::Validated>(print),
                                                     onebatch::on<onebatch::event::Ended>(print_end)};
  onebatch::Session session(digits(argc > 1 ? argv[1] : "data/digits"), *world, listeners, {});
  session.train();
  world->close();
}
